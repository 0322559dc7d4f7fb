"""Which of a model's chat templates is its template: the one that transformers takes where nobody names another.

A model has one under its identifier (`architecture`), so nodes, schedulers and clients choose it by the same rule. A
`chat_template.jinja` comes first. Templates with other names may lie beside it in `additional_chat_templates/`. Without
either, tokenizer_config.json holds a text, or several under names, of which "default" is meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from troth.protocol.errors import InvalidField

TEMPLATE_FILE, MORE_TEMPLATES = "chat_template.jinja", "additional_chat_templates"
DEFAULT = "default"
REMEDY = f"Put the template that is meant into {TEMPLATE_FILE}, with no other one called {DEFAULT}."
SHOWN = 8


def chosen_template(alone: str | None, more: Iterable[str], setting: object) -> str:
    """The template, empty where a model has none.

    Args:
        alone: the text of chat_template.jinja.
        more: names of the templates in additional_chat_templates/, without their ending.
        setting: `chat_template` of tokenizer_config.json.

    Raises:
        InvalidField: there are templates, and none of them, or more than one, is the one that is meant.
    """
    others = sorted(more)
    if DEFAULT in others:
        raise InvalidField(f"A model has a chat template that is called {DEFAULT} beside its own", DEFAULT, REMEDY)
    if alone is not None:
        return alone
    if others:
        raise InvalidField(f"None of a model's chat templates is called {DEFAULT}", others[:SHOWN], REMEDY)
    return setting if isinstance(setting, str) else _of_named(setting)


def _of_named(setting: object) -> str:
    if setting is None:
        return ""
    named: Mapping[Any, object] = setting if isinstance(setting, Mapping) else _by_name(setting)
    found = named.get(DEFAULT)
    if not isinstance(found, str):
        names = sorted(str(name) for name in named)[:SHOWN]
        raise InvalidField(f"None of a model's chat templates is a text called {DEFAULT}", names, REMEDY)
    return found


def _by_name(setting: object) -> dict[str, object]:
    told: list[Any] = setting if isinstance(setting, list) else [setting]
    if not all(isinstance(one, Mapping) and isinstance(one.get("name"), str) for one in told):
        raise InvalidField("chat_template is neither a text nor a list of named ones", type(setting).__name__, REMEDY)
    named = {one["name"]: one.get("template") for one in told}
    if len(named) != len(told):
        raise InvalidField("Two chat templates of a model have one name", sorted(named)[:SHOWN], REMEDY)
    return named
