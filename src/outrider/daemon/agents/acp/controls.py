"""What can be changed about an agent while it runs: its modes, models and further options.

Agents tell them in up to three ways: `configOptions` (the newest), `modes`, and `models`, which
the protocol has dropped and Gemini still speaks. Whichever is there becomes a `Control`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from acp.schema import (
    ConfigOptionUpdate,
    CurrentModeUpdate,
    SessionConfigOptionBoolean,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SetSessionConfigOptionResponse,
    UsageUpdate,
)
from pydantic import ValidationError

from outrider.contract.errors import bad_request
from outrider.contract.resources import Control, SummaryItem

Way = Literal["option", "mode", "model"]
Value = str | bool


@dataclass(frozen=True)
class Setting:
    """A control, what it is for, and in which of the protocol's ways it is changed.

    `names` are its values as a person reads them.
    """

    control: Control
    way: Way
    purpose: str
    names: Mapping[str, str]


class Controls:
    """The settings of one agent, as it last told them."""

    def __init__(self) -> None:
        self._settings: dict[str, Setting] = {}

    def shown(self) -> tuple[Control, ...]:
        """Return the controls as the API shows them."""
        return tuple(setting.control for setting in self._settings.values())

    def value_name(self, purpose: str) -> str | None:
        """Return the readable value of the setting that is for `purpose` (`model`, `mode`)."""
        setting = self.find(purpose)
        value = None if setting is None else setting.control.value
        return setting.names.get(value, value) if setting and isinstance(value, str) else None

    def find(self, purpose: str) -> Setting | None:
        """Return the setting that is for `purpose`."""
        return next((s for s in self._settings.values() if s.purpose == purpose), None)

    def choice(self, purpose: str, wanted: str | None, *, optional: bool) -> dict[str, Value]:
        """Return the change that gives `purpose` a value, told by its id or its name.

        It is empty if there is nothing to change: nothing is wanted, the value is that already,
        or it is `optional` and not to be had.

        Raises:
            ApiError: 400, the agent offers no choice, or not this one.
        """
        setting = self.find(purpose)
        if wanted is None or (setting is None and optional):
            return {}
        if setting is None:
            raise bad_request(f"The agent offers no choice of {purpose}", purpose)
        by_name = {name: value for value, name in setting.names.items()}
        value = wanted if wanted in setting.names else by_name.get(wanted)
        if value is None and not optional:
            raise bad_request(
                f"The agent has no {purpose} {wanted!r}; it has: {', '.join(setting.names)}",
                purpose,
            )
        return {} if value in (None, setting.control.value) else {setting.control.id: value}

    def take_session(self, answer: Mapping[str, Any]) -> None:
        """Take what an agent tells when it opens a session."""
        self._settings = {}
        self._take_options(answer.get("configOptions"))
        modes, models = answer.get("modes"), answer.get("models")
        if isinstance(modes, dict) and self.find("mode") is None:
            self._take_list("mode", modes.get("availableModes"), "id", modes.get("currentModeId"))
        if isinstance(models, dict) and self.find("model") is None:
            self._take_list(
                "model", models.get("availableModels"), "modelId", models.get("currentModelId")
            )

    def take(self, update: CurrentModeUpdate | ConfigOptionUpdate) -> None:
        """Take a change that the agent made."""
        if isinstance(update, CurrentModeUpdate):
            setting = self.find("mode")
            if setting is not None:
                self.changed(setting, update.current_mode_id)
        else:
            self._take_parsed(update.config_options)

    def take_options(self, answer: Mapping[str, Any]) -> None:
        """Take the options as they are after one was changed."""
        self._take_options(answer.get("configOptions"))

    def changed(self, setting: Setting, value: Value) -> None:
        """Note a value that the agent has accepted."""
        control = setting.control
        shown = Control(
            id=control.id,
            label=control.label,
            type=control.type,
            options=control.options,
            value=value,
        )
        self._settings[control.id] = replace(setting, control=shown)

    def check(self, wanted: Mapping[str, Value]) -> list[tuple[Setting, Value]]:
        """Return the settings that `wanted` names with their new values, in its order.

        Raises:
            ApiError: 400, there is no such control, or it has no such value.
        """
        return [(self._checked(name, value), value) for name, value in wanted.items()]

    def _checked(self, name: str, value: Value) -> Setting:
        setting = self._settings.get(name)
        if setting is None:
            known = ", ".join(self._settings) or "none"
            raise bad_request(
                f"The agent has no control {name!r}; it has: {known}", f"controls.{name}"
            )
        control = setting.control
        if control.type == "toggle" and not isinstance(value, bool):
            raise bad_request(f"{name!r} is either true or false", f"controls.{name}")
        if control.type == "select" and value not in control.options:
            options = ", ".join(repr(option) for option in control.options)
            raise bad_request(
                f"{name!r} cannot be {value!r}; it is one of {options}", f"controls.{name}"
            )
        return setting

    def _take_options(self, raw: Any) -> None:
        if not isinstance(raw, list):
            return
        try:
            parsed = SetSessionConfigOptionResponse.model_validate({"configOptions": raw})
        except ValidationError:
            return
        self._take_parsed(parsed.config_options)

    def _take_parsed(
        self, options: list[SessionConfigOptionSelect | SessionConfigOptionBoolean]
    ) -> None:
        others = {name: s for name, s in self._settings.items() if s.way != "option"}
        self._settings = {option.id: _setting(option) for option in options} | others

    def _take_list(self, way: Literal["mode", "model"], raw: Any, key: str, current: Any) -> None:
        entries = [e for e in raw if isinstance(e, dict)] if isinstance(raw, list) else []
        names = {str(e[key]): str(e.get("name") or e[key]) for e in entries if key in e}
        if names:
            self._settings[way] = Setting(
                Control(
                    id=way,
                    label=way.capitalize(),
                    type="select",
                    options=list(names),
                    value=None if current is None else str(current),
                ),
                way,
                way,
                names,
            )


def summary(controls: Controls, usage: UsageUpdate | None) -> tuple[SummaryItem, ...]:
    """Return what a status shows in short: the model, the mode, how full the context is."""
    items = []
    for purpose in ("model", "mode"):
        value = controls.value_name(purpose)
        if value is not None:
            items.append(SummaryItem(id=purpose, label=purpose.capitalize(), value=value))
    if usage is not None and usage.size:
        shown = f"{usage.used} of {usage.size} tokens"
        items.append(SummaryItem(id="context", label="Context", value=shown))
    return tuple(items)


def _setting(option: SessionConfigOptionSelect | SessionConfigOptionBoolean) -> Setting:
    purpose = option.category if isinstance(option.category, str) else option.id
    if isinstance(option, SessionConfigOptionBoolean):
        control = Control(
            id=option.id, label=option.name, type="toggle", value=option.current_value
        )
        return Setting(control, "option", purpose, {})
    names = {
        choice.value: choice.name
        for entry in option.options
        for choice in ([entry] if isinstance(entry, SessionConfigSelectOption) else entry.options)
    }
    control = Control(
        id=option.id,
        label=option.name,
        type="select",
        options=list(names),
        value=option.current_value,
    )
    return Setting(control, "option", purpose, names)
