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
    with pytest.raises(ModelUnavailable, match=r"makes texts of more than 100000|puts together more than 10000 "):
        render(source.replace("KEPT", kept), MESSAGES, {})


TWICE = "{% set s = namespace(l=1) %}{% for i in range(60) %}{% set s.l = MADE %}{% endfor %}"


@pytest.mark.parametrize(
    "made",
    [
        "[s.l, s.l]", "(s.l, s.l)", "{1: s.l, 2: s.l}", "dict(a=s.l, b=s.l)", "[s.l] | batch(2, s.l) | list",
        "{1: s.l, 2: s.l}.values()", "{1: s.l, 2: s.l}.items() | list", "cycler(s.l, s.l).items",
    ],
)  # fmt: skip
@pytest.mark.parametrize("use", ["{{ s.l }}", "{{ s.l | tojson }}", "{{ s.l == [s.l] }}", "{{ s.l in [[s.l]] }}"])
def test_lists_that_hold_the_one_before_twice_are_refused(made: str, use: str) -> None:
    """Sixty small ones, whose text would have as many characters as there are grains of sand."""
    with pytest.raises(ModelUnavailable, match="puts together more than"):
        render(TWICE.replace("MADE", made) + use, MESSAGES, {})


def test_arguments_of_a_macro_and_attributes_of_namespaces_double_nothing() -> None:
    source = "{% set s = namespace(l=1) %}{% macro m() %}{% set s.l = varargs %}{% endmacro %}"
    with pytest.raises(ModelUnavailable, match="puts together more than"):
        render(source + "{% for i in range(60) %}{{ m(s.l, s.l) }}{% endfor %}{{ s.l }}", MESSAGES, {})
    assert render(TWICE.replace("MADE", "namespace(a=s.l, b=s.l)") + "{{ s.l }}", MESSAGES, {}) == "<Namespace>"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{% for i in range(9999) %}{% if a.find('x' ~ 'a') %}{% endif %}{% endfor %}", "longer than"),
        ("{% for i in range(9999) %}{% set b %}{{ a }}{% endset %}{% endfor %}", "makes texts of more than"),
        ("{% for i in range(9999) %}{% set b %}" + "x" * 200_000 + "{% endset %}{% endfor %}", "makes texts of more"),
        ("{% for i in range(99999) %}{% for j in range(99999) if false %}{% endfor %}{% endfor %}", "steps|longer"),
        ("{% set l = range(99999) | list %}{% set m = range(99999) | list %}" + "{{ l == m }}" * 1_500, "longer than"),
        ("{% set s = namespace(n=99999) %}{% for i in range(40) %}{% set s.n = s.n * s.n %}{% endfor %}", "numbers"),
        ("{{ lipsum(n=100000) | length }}", "lipsum"),
        ("{{ a | wordwrap(1) | length }}", "No filter"),
        ("{{ messages | slice(4000000) | list | length }}", "more than"),
    ],
)
def test_what_is_slow_and_small_is_refused(source: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "MOST_SECONDS", 0.2)
    with pytest.raises(ModelUnavailable, match=said):
        render("{% set a = 'a'.ljust(4000000, 'a') %}" + source, MESSAGES, {})


def test_a_huge_template_is_not_compiled() -> None:
    with pytest.raises(ModelUnavailable, match="too large"):
        render("x" * (LARGEST_TEMPLATE + 1), MESSAGES, {})
