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
LINES = "{% set a %}" + "\n" * 900 + "{% endset %}"


def test_a_template_of_the_usual_form_renders_to_the_assistants_turn() -> None:
    text = render(CHATML, MESSAGES, {})
    assert text == "<|im_start|>system\nbe <brief><|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def test_the_names_that_templates_use_are_there() -> None:
    source = (
        "{{ bos_token }}{{ {'a': '<é>'} | tojson }}{% for n in [1, 2, 3] %}{% if n == 2 %}{% break %}{% endif %}"
        "{{ n * 2 }}{% endfor %}{% generation %}said{% endgeneration %}{{ strftime_now('%Y') | length }}"
    )
    assert render(source, MESSAGES, {"bos_token": "<s>"}) == '<s>{"a": "<é>"}2said4'


@pytest.mark.slow
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
        "{{ '%99999999d' | format(1) | string | length }}",
        "{{ '{:>99999999}'.format(1) | string | length }}",
        "{{ '{:{}}{:{}}'.format(1, 9000, 1, 9000) | string | length }}",
        LINES + "{{ a | indent(9000) | string | length }}",
        LINES + "{{ a | replace('\n', a) | string | length }}",
        LINES + "{{ a | replace(new=a, old='\n') | string | length }}",
        LINES + "{{ a.replace('\n', a) | string | length }}",
        LINES + "{{ a | join(a) | string | length }}",
        LINES + "{{ a | map('upper') | join(a) | string | length }}",
        LINES + "{{ a.join(a) | string | length }}",
        LINES + "{{ a.translate({10: a}) | string | length }}",
        LINES + "{{ [a] | map('replace', '\n', a) | join | length }}",
        LINES + "{% set b %}{% filter indent(9000) %}{{ a }}{% endfilter %}{% endset %}{{ b | length }}",
        LINES + "{{ a.replace('\n', 'x') | wordwrap(1, true, a) | string | length }}",
        "{{ messages | tojson(indent=9000) | length }}",
    ],
)
def test_a_template_that_fails_or_attacks_is_refused(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "LARGEST_OUTPUT", 10_000)
    with pytest.raises(ModelUnavailable, match="chat template"):
        render(source, MESSAGES, {})


@pytest.mark.parametrize("kept", ["['x' | center(9000)]", "[a[i:]]", "['x'.ljust(9000)]", "[a + 'x']", "[a ~ i]"])
def test_a_template_that_keeps_what_it_makes_is_refused(kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each text is within the bound, and all of them would take the machine's memory."""
    monkeypatch.setattr(template, "LARGEST_OUTPUT", 10_000)
    monkeypatch.setattr(template, "MOST_MADE", 100_000)
    source = LINES + "{% set s = namespace(l=[]) %}{% for i in range(400) %}{% set s.l = s.l + KEPT %}{% endfor %}"
    with pytest.raises(ModelUnavailable, match="makes texts of more than 100000"):
        render(source.replace("KEPT", kept), MESSAGES, {})


def test_a_huge_template_is_not_compiled() -> None:
    with pytest.raises(ModelUnavailable, match="too large"):
        render("x" * (LARGEST_TEMPLATE + 1), MESSAGES, {})
