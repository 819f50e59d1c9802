"""The settings of an agent that can be changed while it runs: modes, models, options.

Agents report them in up to three forms: `configOptions` (the newest), `modes`, and `models`, which
the protocol has dropped and Gemini still uses. Each becomes a `Control`; where an agent reports a
setting in two forms, the newest counts.
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

ChangeMethod = Literal["option", "mode", "model"]
Value = str | bool


@dataclass(frozen=True)
class Setting:
    """A control, its purpose (`model`, `mode`), and the protocol's method to change it.

    `names` has the name of each value, for people.
    """

    control: Control
    method: ChangeMethod
    purpose: str
    names: Mapping[str, str]


class Controls:
    """The settings of one agent, as last reported."""

    def __init__(self) -> None:
        self._settings: dict[str, Setting] = {}

    def resources(self) -> tuple[Control, ...]:
        """Return the controls as the API shows them."""
        return tuple(setting.control for setting in self._settings.values())

    def value_name(self, purpose: str) -> str | None:
        """Return the name of the value of the setting for `purpose` (`model`, `mode`)."""
        setting = self.find(purpose)
        value = None if setting is None else setting.control.value
        return setting.names.get(value, value) if setting and isinstance(value, str) else None

    def find(self, purpose: str) -> Setting | None:
        """Return the setting for `purpose`."""
        return next((s for s in self._settings.values() if s.purpose == purpose), None)

    def change_to(self, purpose: str, wanted: str | None, *, optional: bool) -> dict[str, Value]:
        """Return the change that sets `purpose` to a value, given by its id or its name.

        It is empty if there is nothing to change: no value is wanted, it is set already, or it
        is `optional` and the agent does not offer it.

        Raises:
            ApiError: 400, the agent does not offer the setting or the value.
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

    def load(self, answer: Mapping[str, Any]) -> None:
        """Load all settings from the agent's answer to the opening of a session."""
        # The newest form counts. Agents report a setting in the older ones, too, for clients
        # that know only those.
        self._settings = {}
        self._load_options(answer.get("configOptions"))
        modes, models = answer.get("modes"), answer.get("models")
        if isinstance(modes, dict) and self.find("mode") is None:
            self._load_list("mode", modes.get("availableModes"), "id", modes.get("currentModeId"))
        if isinstance(models, dict) and self.find("model") is None:
            self._load_list(
                "model", models.get("availableModels"), "modelId", models.get("currentModelId")
            )

    def apply(self, update: CurrentModeUpdate | ConfigOptionUpdate) -> None:
        """Apply a change that the agent made."""
        if isinstance(update, CurrentModeUpdate):
            setting = self.find("mode")
            if setting is not None:
                self.set_value(setting, update.current_mode_id)
        else:
            self._set_options(update.config_options)

    def load_options(self, answer: Mapping[str, Any]) -> None:
        """Load the options from the answer to a change, if it has any."""
        self._load_options(answer.get("configOptions"))

    def set_value(self, setting: Setting, value: Value) -> None:
        """Set a value that the agent has accepted."""
        control = setting.control
        shown = Control(
            id=control.id,
            label=control.label,
            type=control.type,
            options=control.options,
            value=value,
        )
        self._settings[control.id] = replace(setting, control=shown)

    def validate(self, wanted: Mapping[str, Value]) -> list[tuple[Setting, Value]]:
        """Return the settings that `wanted` names with their new values, in its order.

        Raises:
            ApiError: 400, there is no such control, or it has no such value.
        """
        return [(self._validated(name, value), value) for name, value in wanted.items()]

    def _validated(self, name: str, value: Value) -> Setting:
        setting = self._settings.get(name)
        if setting is None:
            names = ", ".join(self._settings) or "none"
            raise bad_request(
                f"The agent has no control {name!r}; it has: {names}", f"controls.{name}"
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

    def _load_options(self, raw: Any) -> None:
        if not isinstance(raw, list):
            return
        try:
            parsed = SetSessionConfigOptionResponse.model_validate({"configOptions": raw})
        # Options in a form that the SDK does not know: the agent can be used without them.
        except ValidationError:
            return
        self._set_options(parsed.config_options)

    def _set_options(
        self, options: list[SessionConfigOptionSelect | SessionConfigOptionBoolean]
    ) -> None:
        # An update has all options, and says nothing of modes and models.
        others = {name: s for name, s in self._settings.items() if s.method != "option"}
        self._settings = {option.id: _setting(option) for option in options} | others

    def _load_list(
        self, method: Literal["mode", "model"], raw: Any, key: str, current: Any
    ) -> None:
        entries = [e for e in raw if isinstance(e, dict)] if isinstance(raw, list) else []
        names = {str(e[key]): str(e.get("name") or e[key]) for e in entries if key in e}
        if names:
            self._settings[method] = Setting(
                Control(
                    id=method,
                    label=method.capitalize(),
                    type="select",
                    options=list(names),
                    value=None if current is None else str(current),
                ),
                method,
                method,
                names,
            )


def summary(controls: Controls, usage: UsageUpdate | None) -> tuple[SummaryItem, ...]:
    """Return the summary of a status: the model, the mode, the use of the context."""
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
