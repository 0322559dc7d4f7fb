"""The picture of a run, docs/demo.svg: not too tall, and told by the lines that the present code prints."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from rich.console import Console

from troth.demo import command
from troth.demo.moments import Act, Moment
from troth.testnet.display import Display
from troth.testnet.errors import DemoError

PICTURE = Path(__file__).parents[2] / "docs" / "demo.svg"
TEXT = re.compile(r'<text class="[^"]*" x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>', re.DOTALL)
CELL = 12.2
"""Width of a character in Rich's pictures."""
TITLE, MOMENT, HELD = re.compile(r"(?:\d\. )?(.+?) ─+"), re.compile(r" *\d+\.\d s  (.+)"), re.compile(r"✓ (.+)")
REPEATED = {Moment.PATH, Moment.REDEEMED, Moment.AUDITED}
"""Lines of which a run has several."""
RESTARTED = {Moment.RESTARTED, Moment.REVIEWERS, Moment.COMMITTED}
"""On a busy machine reviewers may be too late; then a case begins again, and the run has several of these."""


def rows(drawn: str) -> list[str]:
    """The picture's lines as text, without the window's title."""
    found: dict[float, str] = {}
    for x, y, text in sorted((float(x), float(y), html.unescape(text)) for x, y, text in TEXT.findall(drawn)):
        found[y] = found.get(y, "").ljust(round(x / CELL)) + text.replace("\xa0", " ")
    return [found[y].rstrip() for y in sorted(found)]


def entries(drawn: str) -> list[tuple[re.Pattern[str], str]]:
    """Titles, moments and what held, each whole again where it was wrapped."""
    told: list[tuple[re.Pattern[str], str]] = []
    for row in filter(str.strip, rows(drawn)):
        kind = next((one for one in (TITLE, MOMENT, HELD) if one.fullmatch(row)), None)
        if kind is not None:
            told.append((kind, row))
        elif told:
            told[-1] = (told[-1][0], f"{told[-1][1]} {row.strip()}")
    return [(kind, found[1] if (found := kind.fullmatch(row)) else row) for kind, row in told]


def height_of(drawn: str) -> float:
    return float(re.findall(r'viewBox="0 0 [\d.]+ ([\d.]+)"', drawn)[0])


def test_the_picture_is_not_too_tall() -> None:
    assert 0 < height_of(PICTURE.read_text(encoding="utf-8")) <= command.MOST_PIXELS == 1500


def test_the_picture_shows_the_acts_and_moments_of_the_present_code_in_their_order() -> None:
    told = entries(PICTURE.read_text(encoding="utf-8"))
    titles = [text for kind, text in told if kind is TITLE]
    acts = [act for text in titles for act in Act if act.pattern.fullmatch(text)]
    assert titles[0] == "A network on this machine"
    assert acts == list(Act)
    assert len(titles) == len(acts) + 1
    lines = [text for kind, text in told if kind is not TITLE]
    seen: list[Moment] = []
    for text in lines:
        matching = [one for one in Moment if one.pattern.fullmatch(text)]
        assert len(matching) == 1, f"{text!r} is not printed by the demo: make the picture again (make demo PICTURE=…)"
        seen += matching
    again = Moment.RESTARTED in seen
    expected = [one for one in Moment if again or one is not Moment.RESTARTED]
    assert [one for at, one in enumerate(seen) if one not in seen[:at]] == expected
    assert {one for one in seen if seen.count(one) > 1} <= (REPEATED | RESTARTED if again else REPEATED)


def test_only_acts_moments_and_what_held_become_a_picture(tmp_path: Path) -> None:
    picture = tmp_path / "run.svg"
    with command._recorded(picture) as display:
        display.heading("A network on this machine")
        display.step("left out")
        display.act(Act.COURT.number, Act.COURT)
        display.moment(Moment.REVIEWERS.said(block=7))
        display.remember(Moment.ANSWER.said(answer="a word " * 40))
        display.piece("left out")
        display.good(Moment.AUDITED.said(what="log"))
    told = [text for _, text in entries(picture.read_text(encoding="utf-8"))]
    long = f"answer: {'a word ' * 40}".strip()
    assert told[:2] == ["A network on this machine", Act.COURT.value]
    assert told[2:] == [Moment.REVIEWERS.said(block=7), long, Moment.AUDITED.said(what="log")]


def test_a_picture_that_is_too_tall_is_refused(tmp_path: Path) -> None:
    picture = tmp_path / "run.svg"
    recorded = command._recorded(picture)
    display = recorded.__enter__()
    for number in range(80):
        display.moment(f"line {number}")
    with pytest.raises(DemoError, match="taller than 1500 pixels"):
        recorded.__exit__(None, None, None)
    assert not picture.exists()


def test_a_display_without_a_picture_prints_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    display = Display(Console(width=100, highlight=False))
    display.act(1, "A title")
    display.moment("a moment")
    display.remember("not shown")
    display.good("held")
    out = capsys.readouterr().out
    assert [word in out for word in ("1. A title", "a moment", "✓ held", "not shown")] == [True, True, True, False]
