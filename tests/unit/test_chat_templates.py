"""Chat templates of real models, and what they are made of, render as transformers renders them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from support.chat_templates import TEMPLATES

transformers = pytest.importorskip("transformers")

from jinja2 import TemplateError  # noqa: E402
from transformers.utils.chat_template_utils import render_jinja_template  # noqa: E402

from troth.client.errors import ModelUnavailable  # noqa: E402
from troth.client.template import render  # noqa: E402

pytestmark = pytest.mark.torch

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
CONVERSATIONS: dict[str, list[dict[str, str]]] = {
    "question": [{"role": "user", "content": "Hi, <you> & \u00e9"}],
    "instructed": [{"role": "system", "content": " Be brief.\n"}, {"role": "user", "content": "  Why?  "}],
    "long": [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "one\n"},
        {"role": "assistant", "content": "<think>\nwell\n</think>\n\ntwo"},
        {"role": "user", "content": "three"},
        {"role": "assistant", "content": "four"},
        {"role": "user", "content": "five"},
    ],
    "two users": [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}],
    "last word": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}],
    "nobody": [],
}


def by_transformers(template: str, messages: Sequence[dict[str, str]]) -> str | None:
    """The text, or None where the template refuses the conversation."""
    try:
        options = {"chat_template": template, "add_generation_prompt": True, **SPECIAL}
        texts, _ = render_jinja_template([list(messages)], **options)
    except (TemplateError, LookupError, TypeError, AttributeError):
        return None
    return str(texts[0])


def by_us(template: str, messages: Sequence[dict[str, str]]) -> str | None:
    try:
        return render(template, messages, SPECIAL)
    except ModelUnavailable:
        return None


@pytest.mark.parametrize("conversation", sorted(CONVERSATIONS))
@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_a_template_renders_as_transformers_renders_it(name: str, conversation: str) -> None:
    messages: Any = CONVERSATIONS[conversation]
    expected = by_transformers(TEMPLATES[name], messages)
    assert by_us(TEMPLATES[name], messages) == expected
    if conversation == "question":
        assert expected, "a template that refuses a plain question compares nothing"
