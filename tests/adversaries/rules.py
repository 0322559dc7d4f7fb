"""Replacing a rule of the shipped program by a dishonest one, in this process, so that a changed rule is noticed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


class RuleChanged(TypeError):
    """The program calls its rule otherwise than the one that should stand in its place."""


def set_rule(owner: object, name: str, dishonest: Callable[..., Any]) -> None:
    """Put `dishonest` in the place of the function `name` of a module or class; raises as `require_fits`."""
    require_fits(owner, name, dishonest)
    setattr(owner, name, dishonest)


def require_fits(owner: object, name: str, dishonest: Callable[..., Any]) -> None:
    """Callers of the program's function could call `dishonest` as well.

    Raises:
        AttributeError: there is no such function any more.
        RuleChanged: it takes other parameters, or is awaited where the other is not.
    """
    honest = getattr(owner, name)
    if _shape(honest) != _shape(dishonest):
        where = getattr(owner, "__name__", owner)
        was, made = (f"{inspect.signature(one)}" for one in (honest, dishonest))
        raise RuleChanged(f"{where}.{name} is {was}, what should replace it {made}: give them the same parameters")


def _shape(function: Callable[..., Any]) -> tuple[object, ...]:
    """What callers rely on: names and kinds of parameters, and what a call gives."""
    parameters = inspect.signature(function).parameters.values()
    gives = (inspect.iscoroutinefunction(function), inspect.isasyncgenfunction(function))
    return (*gives, *((one.name, one.kind, one.default) for one in parameters))
