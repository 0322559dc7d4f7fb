"""Chat templates: what models ship renders; what a hostile one tries does not."""

from __future__ import annotations

import pytest

from troth.client import template
from troth.client.errors import ModelUnavailable
from troth.client.template import LARGEST_TEMPLATE, render

MESSAGES = [{"role": "system", "content": "be <brief>"}, {"role": "user", "content": "hi"}]
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] }}"
    "{{ '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def test_a_template_of_the_usual_form_renders_to_the_assistants_turn() -> None:
    text = render(CHATML, MESSAGES, {})
    assert text == "<|im_start|>system\nbe <brief><|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def test_the_names_that_templates_use_are_there() -> None:
    source = (
        "{{ bos_token }}{{ {'a': '<é>'} | tojson }}{% for n in [1, 2, 3] %}{% if n == 2 %}{% break %}{% endif %}"
        "{{ n * 2 }}{% endfor %}{% generation %}said{% endgeneration %}{{ strftime_now('%Y') | length }}"
    )
    assert render(source, MESSAGES, {"bos_token": "<s>"}) == '<s>{"a": "<é>"}2said4'


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{{ 'x' * 10000000000 }}",
        "{{ [0] * 10000000000 }}",
        "{{ 10 ** 10 ** 10 }}",
        "{% for i in range(99999) %}{% for j in range(99999) %}spam{% endfor %}{% endfor %}",
        "{% include '/etc/passwd' %}",
        "{{ raise_exception('no system message') }}",
        "{{ missing.attribute }}",
        "{% for %}",
        "{{ 1 / 0 }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ " + "(" * 50_000 + "1" + ")" * 50_000 + " }}",
        "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(30) }}",
        "{% set s = namespace(a='xx') %}{% for i in range(60) %}{% set s.a = s.a ~ s.a %}{% endfor %}",
        "{% set s = namespace(a='xx') %}{% for i in range(60) %}{% set s.a = s.a + s.a %}{% endfor %}",
        "{{ 'x'.ljust(10 ** 11) }}",
        "{{ 'x' | center(100000000000) }}",
        "{{ '%100000000000d' % 1 }}",
    ],
)
def test_a_template_that_fails_or_attacks_is_refused(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "LARGEST_OUTPUT", 10_000)
    with pytest.raises(ModelUnavailable, match="chat template"):
        render(source, MESSAGES, {})


def test_a_huge_template_is_not_compiled() -> None:
    with pytest.raises(ModelUnavailable, match="too large"):
        render("x" * (LARGEST_TEMPLATE + 1), MESSAGES, {})
