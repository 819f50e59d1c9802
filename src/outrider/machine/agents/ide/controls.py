"""Change the settings that an agent's panel shows: its model, its mode."""

from collections.abc import Mapping
from typing import Final

from outrider.contract.errors import ApiError, bad_request
from outrider.contract.resources import Control
from outrider.machine.agents.ide.panel import Panel
from outrider.machine.agents.ide.status import StatusMonitor
from outrider.machine.agents.ide.window import Window, WindowError

CHANGE_TIMEOUT: Final = 5.0

MODELS_TIMEOUT: Final = 20.0
"""Seconds that a panel has to show its models, once the IDE is ready."""


async def change(
    monitor: StatusMonitor, window: Window, panel: Panel, values: Mapping[str, str | bool]
) -> None:
    """Change controls and return once the panel shows the new values.

    Raises:
        ApiError: 400, the panel shows no such control or value; 500, it did not react.
    """
    shown = _controls_of(panel)
    for name, value in values.items():
        if name not in shown:
            raise bad_request(
                f"{panel.name} shows no control {name!r}; it has: {', '.join(shown) or 'none'}",
                f"controls.{name}",
            )
        _check(shown[name], value, f"controls.{name}")
    await _apply(monitor, window, panel, values)


async def choose_model(monitor: StatusMonitor, window: Window, panel: Panel, model: str) -> None:
    """Choose the model of a launch.

    Raises:
        ApiError: 400, the panel shows no models, or not this one; 500, it did not react.
    """
    if not await monitor.wait_until(lambda: "model" in _controls_of(panel), MODELS_TIMEOUT):
        raise bad_request(
            f"{panel.name} shows no choice of models here: launch it without `model`", "model"
        )
    control = _controls_of(panel)["model"]
    _check(control, model, "model")
    if control.value != model:
        await _apply(monitor, window, panel, {"model": model})


async def _apply(
    monitor: StatusMonitor, window: Window, panel: Panel, values: Mapping[str, str | bool]
) -> None:
    try:
        for name, value in values.items():
            await window.call("change", panel.kind, name, value)
    except WindowError as error:
        raise ApiError(500, f"{panel.name} did not react: {error}") from error

    def changed() -> bool:
        now = {name: control.value for name, control in _controls_of(panel).items()}
        return all(now.get(name) == value for name, value in values.items())

    if not await monitor.wait_until(changed, CHANGE_TIMEOUT):
        raise ApiError(500, f"{panel.name} did not take the change: look at its window")


def _controls_of(panel: Panel) -> dict[str, Control]:
    return {control.id: control for control in panel.controls()}


def _check(control: Control, value: str | bool, field: str) -> None:
    if isinstance(value, str) and value not in control.options:
        raise bad_request(
            f"{control.id!r} cannot be {value!r}; it is one of {', '.join(control.options)}", field
        )
