"""A member's own corpus: taken from files of many forms, sifted, judged; and who has none is warned."""

from __future__ import annotations

import itertools
import json
import logging
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from troth.committee.command import app
from troth.committee.configuration import MemberConfiguration, load
from troth.committee.corpus import own as own_corpus
from troth.committee.corpus.own import MOST_KNOWN, AskingPlan, languages_of, make_corpus, met_again, sifted, warning_of
from troth.committee.corpus.prompts import LONGEST, sources_of
from troth.committee.corpus.sources import prompts_in
from troth.committee.corpus.texts import FEWEST, Corpus, read_corpus, shipped
from troth.committee.errors import MemberConfigurationInvalid
from troth.committee.examining import examine
from troth.committee.rating.running import rating

SMALL = AskingPlan(nodes=10, members=4, prompts=2, attempts=4)
WORDS = ("kettle", "marble", "oyster", "pepper", "quartz", "ribbon", "saddle", "timber", "velvet", "walnut", "zephyr")
OWN = [f"does the {' '.join(words)} belong here" for words in itertools.permutations(WORDS, 3)][:400]


def member_file(folder: Path, corpus: str) -> MemberConfiguration:
    """A configuration that rates; nothing is behind its addresses."""
    folder.mkdir(exist_ok=True)
    (folder / "committee.toml").write_text(
        'version = 1\n[chain]\nrpc = "http://127.0.0.1:1"\n[listen]\nendpoint = "https://member.example.org:8543"\n'
        f'[reputation]\ncontract = "0x{"11" * 20}"\n{corpus}'
    )
    return load(folder)


def test_prompts_are_taken_from_texts_lists_and_chats(tmp_path: Path) -> None:
    folder = tmp_path / "chats"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.txt").write_text("\ufeffone line\ntwo\\nlines\n", "utf-8")
    chat = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "a chat"}, {"role": "user"}]
    lines = [
        {"messages": chat},
        {"conversations": [{"from": "human", "value": "shared"}, {"from": "gpt", "value": "no"}]},
        {"prompt": "asked", "text": "no"},
        "plain",
        {"other": 1},
        {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
        7,
    ]
    (folder / "deep" / "b.jsonl").write_text("".join(json.dumps(line) + "\n\n" for line in lines))
    (folder / "deep" / "c.json").write_text(json.dumps([{"question": "in a list"}, chat]))
    (folder / "d.csv").write_text("not looked at")
    found = [text for text in prompts_in([folder]) if text]
    assert found == ["one line", "two\nlines", "a chat", "shared", "asked", "plain", "in a list", "a chat"]
    assert list(prompts_in([folder / "d.csv"])) == ["not looked at"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"prompt": "x"}\n{"prompt"', "Line 2"),
        ("a.json", b"[" * 100_000, "no JSON"),
        ("a.txt", b"\xff\xfe", "cannot be read"),
    ],
)
def test_a_file_that_is_no_prompts_is_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(MemberConfigurationInvalid, match=message) as raised:
        list(prompts_in([path]))
    assert str(path) in str(raised.value)


def test_nothing_to_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(MemberConfigurationInvalid, match="no file with"):
        list(prompts_in([tmp_path]))
    with pytest.raises(MemberConfigurationInvalid, match="cannot be read"):
        list(prompts_in([tmp_path / "missing.txt"]))


def test_what_is_public_private_or_there_already_is_left_out() -> None:
    known = max(shipped().texts, key=len)
    texts = [
        "does the kettle sing at 7?", "Does the kettle sing at 15", "write to me@example.org please", "call 0301234567",
        "see https://example.org/x now", "hm", "?!...", "x" * (LONGEST + 1), "", known, known.upper(),
        f"Hello! {known}", "a marble of its own",
    ]  # fmt: skip
    found = sifted(texts)
    assert found.texts == ("does the kettle sing at 7?", "a marble of its own")
    assert found.left_out == {
        "there already": 1, "with an address or a long number": 3, "too short": 2, "too long": 1,
        "in the corpus that ships": 3,
    }  # fmt: skip


def test_languages_are_told_by_script_and_frequent_words() -> None:
    texts = [
        "what is the time",
        "wie ist das Wetter",
        "où est la gare",
        "что нового",
        "今天天气怎么样",
        "今日の天気は",
        "xyz",
    ]
    told = languages_of([*texts, "how are you and what for"])
    assert told == {
        "English": 2, "German": 1, "French": 1, "Cyrillic": 1, "Chinese": 1, "Japanese": 1, "not told": 1,
    }  # fmt: skip


def test_a_corpus_is_written_for_its_owner_alone_and_never_over_another(tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    texts = [*OWN[: FEWEST - 1], "two\nlines of mine"]
    made = make_corpus([*texts, OWN[0]], path, SMALL)
    assert made["prompts"] == FEWEST
    assert made["left_out"] == {"there already": 1}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_corpus(path).texts == tuple(texts)
    with pytest.raises(MemberConfigurationInvalid, match="cannot be written"):
        make_corpus(texts, path, SMALL)
    with pytest.raises(MemberConfigurationInvalid, match="1 there already") as raised:
        make_corpus(texts[1:] + texts[1:2], tmp_path / "few.txt", SMALL)
    assert str(FEWEST - 1) in str(raised.value)
    assert not (tmp_path / "few.txt").exists()


def test_a_node_meets_texts_again_as_often_as_is_said() -> None:
    """Counted here by drawing; ten times the texts last ten times as long, and half as many members half as long."""
    sources = [[text] for text in range(100)]
    plan = AskingPlan(nodes=10, members=1, prompts=1, attempts=0)
    # 1 - 0.99 ** k is 0.1 at k = 10.5, and 0.5 at 69.
    assert list(met_again(sources, plan).values()) == ["after 11 epochs", "after 69 epochs"]
    assert list(met_again([[text] for text in range(1000)], plan).values())[1] == "after 693 epochs"
    assert list(met_again(sources, AskingPlan(10, 2, 1, 0)).values())[1] == "after 138 epochs"
    joined = [[text, (text + 50) % 100] for text in range(100)]
    assert list(met_again(joined, plan).values())[1] == "after 18 epochs"


@pytest.mark.slow
def test_a_corpus_with_long_texts_joins_fewer() -> None:
    short = Corpus.of(OWN)
    long = Corpus.of([*OWN, *(" ".join(OWN[place : place + 2 + place % 40]) for place in range(len(OWN)))])
    parts = [sum(len(texts) > 1 for texts in sources_of(corpus)) for corpus in (short, long)]
    assert parts[0] > 2 * parts[1]
    assert sources_of(short) == sources_of(short)


def test_who_has_no_corpus_or_a_public_one_is_warned() -> None:
    assert warning_of(Corpus.of(OWN)) is None
    said = warning_of(None)
    assert said is not None
    assert "95.6 %" in said
    assert "troth committee reputation corpus" in said
    copied = warning_of(shipped())
    assert copied is not None
    assert "100% of them in the corpus that ships" in copied
    some = int(2 * MOST_KNOWN * len(OWN))
    assert warning_of(Corpus.of([*OWN, *shipped().texts[:some]])) is not None


async def test_a_member_is_warned_once_when_it_starts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    own = tmp_path / "with" / "own.txt"
    own.parent.mkdir()
    make_corpus(OWN, own, SMALL)
    for folder, line, count in (("with", "corpus = 'own.txt'\n", 0), ("without", "", 1)):
        caplog.clear()
        configuration = member_file(tmp_path / folder, line)
        # It goes no further: there is no VRF key.
        with caplog.at_level(logging.WARNING), pytest.raises(Exception, match="cannot be read"):
            async with rating(configuration, None, tmp_path / "none", None):  # type: ignore[arg-type]
                pass
        assert sum("corpus that ships" in record.message for record in caplog.records) == count


@pytest.mark.slow
async def test_doctor_says_it_too(tmp_path: Path) -> None:
    member_file(tmp_path / "without", "")
    file = tmp_path / "without" / "committee.toml"
    file.write_text(file.read_text().replace("[listen]", f'committee = "0x{"22" * 20}"\n[listen]'))
    findings = {one.check: one for one in await examine(tmp_path / "without")}
    assert not findings["corpus"].ok
    assert "--output own.txt" in findings["corpus"].fix


@pytest.mark.slow
def test_the_command_makes_a_corpus_that_a_member_reads(tmp_path: Path) -> None:
    (tmp_path / "chats.txt").write_text("".join(f"{text}\n" for text in OWN))
    given = ["reputation", "corpus", str(tmp_path / "chats.txt"), "--output", str(tmp_path / "own.txt"), "--json"]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output
    shown = json.loads(done.output)
    assert shown["prompts"] == len(OWN)
    assert shown["languages"]["English"] == len(OWN)
    assert [key for key in shown if key.startswith("met")] == ["met_again"]
    assert member_file(tmp_path, "corpus = 'own.txt'\n").rating.terms.corpus.texts == tuple(OWN)  # type: ignore[union-attr]
    assert own_corpus.said_of(read_corpus(tmp_path / "own.txt")).startswith(f"its own, {len(OWN)} prompts, 0%")
