"""Reading a request's fields: every value has its type and its bounds checked before anything else looks at it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from troth.client.gateway.errors import InvalidRequest, Unsupported


class Fields:
    """A JSON object of a request. A field that is null counts as absent, as OpenAI's interface has it."""

    def __init__(self, values: object, place: str = "") -> None:
        if not isinstance(values, Mapping):
            raise InvalidRequest(
                "This should be a JSON object", kind_of(values), "Send an object.", param=place or None
            )
        self._values = values
        self._place = place

    def param(self, name: str) -> str:
        """The field's name as an error shows it."""
        return f"{self._place}.{name}" if self._place else name

    def get(self, name: str) -> Any:
        """The value, None if it is absent."""
        return self._values.get(name)

    def text(self, name: str, default: str | None = None) -> str:
        """A text that can be encoded."""
        value = self.get(name)
        if value is None and default is not None:
            return default
        return read_text(value, self.param(name))

    def whole(self, name: str, least: int, most: int, default: int) -> int:
        """A whole number from `least` to `most`."""
        value = self.get(name)
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if type(value) is not int or not least <= value <= most:
            raise self._invalid(name, value, f"a whole number from {least} to {most}")
        return value

    def number(self, name: str, least: float, most: float, default: float) -> float:
        """A finite number from `least` to `most`."""
        value = self.get(name)
        if value is None:
            return default
        if type(value) not in {int, float} or not math.isfinite(value) or not least <= value <= most:
            raise self._invalid(name, value, f"a number from {least:g} to {most:g}")
        return float(value)

    def flag(self, name: str) -> bool:
        """True or false; false if it is absent."""
        value = self.get(name)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise self._invalid(name, value, "true or false")
        return value

    def inner(self, name: str) -> Fields:
        """An object in a field; empty if it is absent."""
        value = self.get(name)
        return Fields({} if value is None else value, self.param(name))

    def refuse_unless(self, name: str, harmless: Sequence[Any], why: str) -> None:
        """Raise Unsupported if the field is present and not one of the `harmless` values."""
        value = self.get(name)
        if value is None or any(type(value) is type(one) and value == one for one in harmless):
            return
        if type(value) in {int, float} and value in harmless:
            return
        raise Unsupported(f"'{name}' is not supported: {why}", "", "Leave it out.", param=self.param(name))

    def _invalid(self, name: str, value: object, wanted: str) -> InvalidRequest:
        shown = value if isinstance(value, int | float) else kind_of(value)
        return InvalidRequest(f"'{name}' should be {wanted}", shown, "Correct it.", param=self.param(name))


def read_text(value: object, param: str) -> str:
    """A text without lone surrogates; InvalidRequest otherwise."""
    if not isinstance(value, str):
        raise InvalidRequest(f"'{param}' should be text", kind_of(value), "Correct it.", param=param)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest("This is no valid Unicode", param, "Encode it as UTF-8.", param=param) from error
    return value


def kind_of(value: object) -> str:
    """What a value is, without the value: it may be somebody's question."""
    names = {type(None): "null", bool: "true or false", str: "text", list: "a list", dict: "an object"}
    return "nothing" if value is None else names.get(type(value), "a number")
