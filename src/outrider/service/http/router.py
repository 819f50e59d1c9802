"""Routes requests by dictionary lookups instead of trying one regular expression after another.

The paths of the API have few shapes: the positions of the parameters among their segments. For each
shape, the path is looked up with its parameters replaced by empty segments. When the API had 35
paths, this took a fourth to an eighth of the time of Starlette's router: 25 us against 112 us for
`/shortcuts/{ideId}/chat`, 36 us against 294 us for the last path (on a busy machine).
"""

from collections.abc import Awaitable, Iterable, Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

from outrider.service.http.pipeline import Resource

Shape = tuple[int, ...]
"""The positions of a path's parameters among its segments."""


class Router:
    """ASGI application that passes a request to the resource of its path.

    Args:
        otherwise: the application for all other paths.
        sockets: the applications that serve WebSockets outside the endpoint table, by path.
    """

    def __init__(
        self,
        resources: Iterable[Resource],
        otherwise: ASGIApp,
        sockets: Mapping[str, ASGIApp],
    ) -> None:
        self._otherwise = otherwise
        self._sockets = sockets
        self._fixed: dict[str, Resource] = {}
        self._shapes: dict[int, dict[Shape, dict[str, tuple[Resource, list[str]]]]] = {}
        """The paths with parameters, by their number of segments and their shape."""
        for resource in resources:
            segments = resource.path.split("/")
            shape = tuple(i for i, segment in enumerate(segments) if segment.startswith("{"))
            if not shape:
                self._fixed[resource.path] = resource
                continue
            names = [segments[i][1:-1] for i in shape]
            shapes = self._shapes.setdefault(len(segments), {})
            shapes.setdefault(shape, {})[_lookup_key(segments, shape)] = (resource, names)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve a request. Not a coroutine: its frame would stay with every idle WebSocket."""
        is_socket = scope["type"] == "websocket"
        if is_socket and scope["path"] in self._sockets:
            return self._sockets[scope["path"]](scope, receive, send)
        found = self._find(scope["path"])
        if found is None or (is_socket and not found[0].has_socket):
            return self._otherwise(scope, receive, send)
        resource, parameters = found
        scope["endpoint"], scope["path_params"] = resource, parameters
        return resource(scope, receive, send)

    def _find(self, path: str) -> tuple[Resource, dict[str, str]] | None:
        fixed = self._fixed.get(path)
        if fixed is not None:
            return fixed, {}
        segments = path.split("/")
        for shape, resources in self._shapes.get(len(segments), {}).items():
            found = resources.get(_lookup_key(segments, shape))
            if found is not None:
                resource, names = found
                values = [segments[i] for i in shape]
                if all(values):
                    return resource, dict(zip(names, values, strict=True))
        return None


def _lookup_key(segments: list[str], shape: Shape) -> str:
    fixed_segments = segments.copy()
    for i in shape:
        fixed_segments[i] = ""
    return "/".join(fixed_segments)
