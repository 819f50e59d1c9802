"""Finds the resource of a path in a dictionary, in place of one regular expression after another.

The paths of the API differ in few shapes: which of their segments are parameters. For each
shape the path is looked up with those segments blanked.
"""

from collections.abc import Iterable
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from outrider.cloud.api.pipeline import Resource

_BLANK: Final = ""

Shape = tuple[int, ...]
"""The positions of a path's parameters among its segments."""


class Paths:
    """An ASGI application that hands a request to the resource of its path, or else on."""

    def __init__(self, resources: Iterable[Resource], otherwise: ASGIApp) -> None:
        self._otherwise = otherwise
        self._shapes: dict[Shape, dict[str, tuple[Resource, list[str]]]] = {}
        for resource in resources:
            segments = resource.path.split("/")
            shape = tuple(i for i, segment in enumerate(segments) if segment.startswith("{"))
            names = [segments[i][1:-1] for i in shape]
            self._shapes.setdefault(shape, {})[_blanked(segments, shape)] = (resource, names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] == "http":
            segments = scope["path"].split("/")
            for shape, resources in self._shapes.items():
                if shape and len(segments) <= shape[-1]:
                    continue
                found = resources.get(_blanked(segments, shape))
                values = [segments[i] for i in shape]
                if found is not None and all(values):
                    resource, names = found
                    scope["endpoint"] = resource
                    scope["path_params"] = dict(zip(names, values, strict=True))
                    await resource(scope, receive, send)
                    return
        await self._otherwise(scope, receive, send)


def _blanked(segments: list[str], shape: Shape) -> str:
    if not shape:
        return "/".join(segments)
    return "/".join(_BLANK if i in shape else segment for i, segment in enumerate(segments))
