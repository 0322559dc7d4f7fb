"""Challenges: prompts and their lists, and answers that are asked, shown and proven as a member's client does it."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.toy_tab_stage import Stage, toy_stage

from troth.cases.judging import Inputs, Recomputed
from troth.committee.corpus import prompts
from troth.committee.corpus.prompts import LONGEST, MOST_PROMPTS, PARTS, prompts_of
from troth.committee.corpus.stand_ins import StandIns
from troth.committee.corpus.texts import FEWEST, Corpus, read_corpus, shipped
from troth.committee.errors import EpochRefused, MemberConfigurationInvalid
from troth.committee.rating.answers import ChallengeAnswer, decode_answer, encode_answer, require_distinct
from troth.committee.rating.asking import ClientExaminer, ExaminableNodes
from troth.committee.rating.challenges import (
    Challenge,
    PromptOpening,
    challenges_of,
    new_openings,
    places_of,
    require_openings,
    root_of,
    writer_of,
)
from troth.committee.rating.moments import MOST_LATE, due_of_attempt, late_part
from troth.committee.rating.store import EpochStore
from troth.protocol.credit import Surprises
from troth.protocol.hashing import keccak256
from troth.protocol.market.bodies import Admitted, Results
from troth.protocol.market.types import ExecutionClass
from troth.protocol.reputation import MAXIMUM_NODES, ONE
from troth.protocol.request import TOP_P_LIMIT
from troth.protocol.types import Address, Hash32, ModelDescriptor, address_from_bytes

SEED = Hash32(b"\7" * 32)
CITIES = ((5, "Bonn"), (9, "Rome"), (14, "New York"), (23, "Lima"))


def anything(_prompt: str) -> bool:
    return True


@pytest.mark.slow
def test_prompts_are_many_different_and_follow_from_the_seed_alone() -> None:
    written = prompts_of(SEED, 300, anything)
    assert len(set(written)) == 300
    assert written == prompts_of(SEED, 300, anything)
    lengths = sorted(map(len, written))
    assert lengths[0] < 120 < 300 < lengths[150] < 1_500 < lengths[-1] <= LONGEST
    # Not only English, as users write.
    assert sum(not text.isascii() for text in written) > 10


@pytest.mark.slow
def test_a_class_with_a_short_context_gets_short_prompts() -> None:
    written = prompts_of(SEED, 40, anything, 100)
    assert max(map(len, written)) <= 100
    with pytest.raises(MemberConfigurationInvalid, match="no prompt of 2 characters"):
        prompts_of(SEED, 1, anything, 2)


def test_a_text_is_written_again_with_names_and_numbers_of_the_same_kind() -> None:
    texts = [f"Is the {number}:30 train in {city} late? Ask Emma in 2023" for number, city in CITIES]
    corpus, chooser = Corpus.of([*texts, texts[0]]), random.Random(1)
    assert corpus.texts == tuple(texts)
    written = {corpus.rewritten(place, chooser) for place in range(4) for _ in range(40)}
    assert len(written) > 100
    form = re.compile(r"Is the (\d+):(\d+) train in (.*) late\? Ask Emma in (\d{4})")
    found = [form.fullmatch(text) for text in written]
    assert all(found)
    assert {match[3] for match in found if match} == {city for _, city in CITIES}
    assert all(1 <= int(match[1]) <= 28 and 2015 <= int(match[4]) <= 2025 for match in found if match)


def test_names_times_and_numbers_come_as_often_as_others_have_them() -> None:
    """A list in which people ask for $734 at 6:17 in Vaduz as often as for $500 at 6:30 in Paris is known by it."""
    sums, cities = ("500", "200", "1000", "300", "100", "734", "250"), ("Rome", "Lima", "Vaduz")
    texts = [f"A {one} for ${sums[n % 7]} in {cities[n % 3]} on Monday" for n, one in enumerate(["hat"] * 420)]
    texts += [f"send code {100 + n}" for n in range(20)] + [f"{n} hats in Rome" for n in range(280)]
    stand_ins, chooser = StandIns.of([*texts, "on Friday"]), random.Random(1)
    form = re.compile(r"a bag for \$(\d+) in (\w+) on (\w+)")
    found = [form.fullmatch(stand_ins.renamed("a bag for $900 in Paris on Sunday", chooser)) for _ in range(600)]
    assert all(found)
    counted = [Counter(match[place] for match in found if match) for place in (1, 2, 3)]
    assert set(counted[0]) == set(sums) - {"1000"}
    assert counted[0]["500"] < 200
    assert counted[1]["Rome"] > 2 * counted[1]["Vaduz"] > 0
    assert counted[2]["Monday"] > 500
    # Codes are not sums, though they are as long.
    codes = {stand_ins.renamed("send code 117", chooser) for _ in range(100)}
    assert codes <= {f"send code {100 + n}" for n in range(20)}
    assert len(codes) > 10


def test_other_words_stand_between_two_where_they_do_elsewhere() -> None:
    texts = ["Find a train to Bonn", "Find  the train\nto Rome", "Find the train to Rome", "hats, please"]
    corpus, chooser = Corpus.of(texts), random.Random(1)
    once = {corpus.swapped(0, chooser, 1) for _ in range(200)}
    begun = {"Find  the train to Bonn", "Find the train to Bonn"}
    assert once == begun | {"Find a train to Rome", "Find a train\nto Rome"}
    twice = {corpus.swapped(0, chooser, 2) for _ in range(200)}
    assert twice > {"Find the train to Rome", "Find  the train to Rome"}
    # Nothing else has what is between, or around it.
    assert corpus.swapped(3, chooser, 4) == texts[3]
    # One word for two, and two for one, as often as one likes.
    corpus = Corpus.of(["Find a train to Bonn", "Find the night train to Rome"])
    found = {corpus.swapped(0, chooser, times) for times in (2, 3, 4) for _ in range(100)}
    assert found == {f"Find {one} train to {city}" for one in ("a", "the night") for city in ("Bonn", "Rome")}


def test_a_text_whose_words_were_exchanged_looks_as_it_did() -> None:
    """Ends of other texts bring more numbers and capitals and shorter words, the more lists the more."""

    def more(traits: Callable[[str], int], other: Callable[[int], str | None]) -> float:
        """Of texts, how much more such text there is: in parts of a text."""
        pairs = [(text, made) for place, text in enumerate(shipped().texts) if (made := other(place))]
        return sum(traits(made) - traits(text) for text, made in pairs) / len(pairs)

    chooser = random.Random(1)
    ways: list[Callable[[int], str | None]] = [
        partial(shipped().swapped, chooser=chooser, times=1),
        partial(shipped().exchanged, chooser=chooser),
    ]
    for traits, least in ((len, 5), (lambda text: any(map(str.isdigit, text)), 0.02)):
        swapped, exchanged = (more(traits, way) for way in ways)
        assert abs(swapped) < least < exchanged, (swapped, exchanged)


def test_a_text_gets_the_end_of_another_that_has_two_of_its_words_in_a_row() -> None:
    texts = ["Please find a train to Bonn", "Can you find  a recipe\nfor 7 people", "find a", "hats, please"]
    corpus, chooser = Corpus.of(texts), random.Random(1)
    found = {corpus.exchanged(place, chooser) for place in (0, 1) for _ in range(40)} - {None}
    ends = {"Please find a recipe\nfor", "Can you find  a train to Bonn"}
    assert {re.sub(r" \d+ people$", "", str(text)) for text in found} == ends
    # Who has no beginning or end of its own would come out as the other one is.
    assert {corpus.exchanged(place, chooser) for place in (2, 3)} == {None}


@pytest.mark.slow
def test_texts_that_were_asked_keep_their_beginning_and_end_as_long_as_they_can() -> None:
    """The end of another text shows: it has what this one never had."""
    letters = [chr(97 + number // 15) + chr(97 + number % 15) for number in range(FEWEST)]
    colours = ["red", "blue", "green", "white", "black", "brown", "grey", "pink", "gold", "teal"]
    begun = {f"{one} a{one} b{one}": f"c{one} d{one} {one}" for one in letters}
    texts = [f"{one} hats for {colours[at % 10]} rooms in {end}" for at, (one, end) in enumerate(begun.items())]
    known = set[str]()
    for number in range(4):
        known.update(prompts_of(bytes([number]) * 32, 100, lambda text: text not in known, 46, Corpus.of(texts)))
    found = [re.fullmatch(r"(\w+ \w+ \w+) hats for \w+ rooms in (.*)", text) for text in known]
    assert all(match and begun[match[1]] == match[2] for match in found)


@pytest.mark.slow
def test_texts_that_were_asked_as_they_are_typed_come_again_with_other_ends() -> None:
    """Else a list would have ever fewer texts without a name or a number, and be known by it."""
    letters = [chr(97 + number // 15) + chr(97 + number % 15) for number in range(FEWEST)]
    texts = [f"which {one}{one} would you take to find {one[::-1]}{one}" for one in letters]
    corpus, known = Corpus.of(texts), set[str]()
    for number in range(4):
        written = prompts_of(bytes([number]) * 32, FEWEST // 2, lambda text: text not in known, 44, corpus)
        known.update(written)
    assert len(known - set(texts)) >= FEWEST
    assert all(re.fullmatch(r"which [a-z]{4} would you take to find [a-z]{4}", text) for text in known)


def test_a_long_prompt_is_of_texts_that_have_to_do_with_each_other() -> None:
    texts = ["which trains go to Bonn", "recipes for bread", "night trains, please", "bread again", "a hat"]
    # A word counts that few texts have.
    corpus = Corpus.of([*texts, *(f"thing{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(60))])
    assert corpus.akin(0, [1, 2, 3, 4]) == 2
    assert corpus.akin(1, [0, 3, 4]) == 3


def test_texts_that_are_joined_have_numbers_all_or_none() -> None:
    """Of several texts one has a number more often than of people's prompts one that is as long."""
    letters = [chr(97 + number // 26) + chr(97 + number % 26) for number in range(FEWEST)]
    texts = [f"send {number} hats to {one}" for number, one in enumerate(letters)]
    texts += [f"where is the hat of {one}" for one in letters]
    written = [text for text in prompts_of(SEED, 60, anything, 2_000, Corpus.of(texts)) if len(text) > 60]
    numbered = [[bool(re.search(r"send \d+", text)), "where is" in text] for text in written]
    assert {(True, False), (False, True)} == set(map(tuple, numbered))


def test_a_corpus_of_a_members_own_is_read_or_refused(tmp_path: Path) -> None:
    own = tmp_path / "own.txt"
    own.write_text("".join(f"what about {number}\\nand then?\n" for number in range(FEWEST)), "utf-8")
    corpus = read_corpus(own)
    assert len(corpus.texts) == FEWEST
    assert corpus.texts[3] == "what about 3\nand then?"
    assert all("about" in text and "{" not in text for text in prompts_of(SEED, 8, anything, corpus=corpus))
    own.write_text("what about it\n" * FEWEST)
    with pytest.raises(MemberConfigurationInvalid, match="at least 200 different"):
        read_corpus(own)
    own.write_bytes(b"\xff\n" * FEWEST)
    with pytest.raises(MemberConfigurationInvalid, match="cannot be read"):
        read_corpus(own)
    with pytest.raises(MemberConfigurationInvalid, match="cannot be read"):
        read_corpus(tmp_path / "missing.txt")


def test_the_shipped_corpus_names_nobodys_address() -> None:
    assert len(shipped().texts) > 900
    assert not [text for text in shipped().texts if re.search(r"@|https?:|\d{7}", text)]


@pytest.mark.slow
def test_a_prompt_that_was_asked_is_never_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = set(prompts_of(SEED, 40, anything))
    assert first.isdisjoint(prompts_of(SEED, 40, lambda text: text not in first))
    monkeypatch.setattr(prompts, "TRIES", 5)
    with pytest.raises(MemberConfigurationInvalid, match="No new prompt"):
        prompts_of(SEED, 1, lambda text: False)


@pytest.mark.slow
def test_two_members_that_hide_their_prompts_from_each_other_write_none_alike() -> None:
    """A short text without names or numbers comes out alike whoever writes it: unless one member alone may."""
    members = [address_from_bytes(bytes([number]) * 20) for number in range(1, 8)]

    def of(member: Address, among: list[Address]) -> set[str]:
        mine = prompts_of(keccak256(member.encode()), 400, lambda text: writer_of(text, among) == member)
        return set(mine)

    written = [of(member, members) for member in members]
    assert len(set().union(*written)) == 7 * 400
    free = [of(member, [member]) for member in members]
    assert len(set().union(*free)) < 7 * 400 - 50
    # Whoever leaves hands its part on, and no other member's changes.
    for text in written[0] | written[1]:
        assert (writer_of(text, members[1:]) == writer_of(text, members)) is (text not in written[0])


def test_a_list_commits_to_prompts_and_to_when_and_how_they_are_asked() -> None:
    openings = new_openings(24, anything)
    require_openings(openings, root_of(openings))
    asked = [challenges_of(openings, places_of(part, 24), 512) for part in range(PARTS)]
    assert sorted(one.place for part in asked for one in part) == list(range(24))
    for part in asked:
        assert [one.moment for one in part] == sorted(one.moment for one in part)
        assert all(0 <= one.moment < 1 and one.choices.temperature_millionths > 0 for one in part)
        assert all(one.choices.top_p_millionths == TOP_P_LIMIT and 16 <= one.choices.max_tokens <= 512 for one in part)
    assert asked == [challenges_of(list(openings), places_of(part, 24), 512) for part in range(PARTS)]
    other = [PromptOpening("00" * 32, openings[0].prompt), *openings[1:]]
    for wrong in (other, openings[1:], openings[::-1]):
        with pytest.raises(EpochRefused, match="not the prompts"):
            require_openings(wrong, root_of(openings))
    twice = [*openings, openings[0]]
    with pytest.raises(EpochRefused, match="twice"):
        require_openings(twice, root_of(twice))


@given(st.integers(0, MOST_PROMPTS))
def test_the_parts_of_a_list_share_nothing_and_leave_nothing_out(count: int) -> None:
    parts = [place for part in range(PARTS) for place in places_of(part, count)]
    assert parts == list(range(count))


@pytest.mark.parametrize(("nodes", "attempts"), [(50, 6), (9, 6), (4, 2)])
def test_no_time_of_an_epoch_has_more_of_members_questions_than_another(nodes: int, attempts: int) -> None:
    """Whoever serves many orders shortly before an epoch ends would know that they are members'."""
    asking, members, listed = 1 - 120 / 1800, 7, PARTS * 4 * nodes
    own = attempts * members
    late = late_part(asking, listed, own)
    moments = [(place + 0.5) / 1000 for place in range(1000)]
    due = [due_of_attempt(moment, asking, late) for moment in moments]
    assert all(0 <= one < 1 for one in due)
    after = sum(one >= asking for one in due) / len(due) * own / (listed + own)
    assert after == pytest.approx(1 - asking, abs=0.001)


def test_members_that_have_few_questions_of_their_own_ask_some_before_they_sign() -> None:
    assert late_part(0.5, 800, 7) == MOST_LATE
    assert late_part(0.9, 800, 0) == 0.0


def test_a_next_list_has_every_host_and_nobody_else() -> None:
    nodes = [address_from_bytes((1000 + number).to_bytes(20, "big")) for number in range(300)]
    few = ExaminableNodes(frozenset(nodes[:4]), frozenset(nodes[1:6]))
    assert set(few.listed(SEED)) == set(nodes[1:6])
    few.require(few.listed(SEED), SEED)
    # Who came or left in between may be there or not: views of the chain differ by blocks.
    few.require(nodes[1:4], SEED)
    few.require(nodes[:6], SEED)
    for wrong, what in ((nodes[2:6], "leaves nodes out"), (nodes[:7], "cannot be drawn")):
        with pytest.raises(EpochRefused, match=what):
            few.require(wrong, SEED)
    many = ExaminableNodes(frozenset(nodes), frozenset(nodes))
    assert len(many.listed(SEED)) == MAXIMUM_NODES
    many.require(many.listed(SEED), SEED)
    assert many.listed(SEED) != many.listed(Hash32(SEED[:31] + b"\0"))
    with pytest.raises(EpochRefused, match="leaves nodes out"):
        many.require(many.listed(SEED)[1:], SEED)


def test_what_a_member_keeps_survives_it(tmp_path: Path) -> None:
    store, openings = EpochStore(tmp_path / "rating.sqlite"), new_openings(4, anything)
    root = root_of(openings)
    store.keep_openings(5, openings)
    store.keep_attempts(5, SEED, openings[:1])
    store.close()
    assert (tmp_path / "rating.sqlite").stat().st_mode & 0o777 == 0o600
    again = EpochStore(tmp_path / "rating.sqlite")
    assert again.openings(root) == openings
    assert again.attempts(5, SEED) == openings[:1]
    assert not again.is_new(openings[0].prompt)
    assert again.is_new_to(openings[0].prompt, root)
    assert not again.is_new_to(openings[0].prompt, SEED)
    again.forget_before(6)
    assert again.openings(root) is None
    # Its prompts are never asked again all the same.
    assert not again.is_new(openings[0].prompt)
    again.close()


# ---------------------------------------------------------------------------------------------- through a client


@dataclass
class LikelyModel:
    """Texts that it finds as likely as they should be."""

    asked: list[Inputs] = field(default_factory=list)

    async def require(self, descriptor: ModelDescriptor, definition: ExecutionClass) -> None:
        pass

    async def recompute(self, inputs: Inputs) -> Recomputed:
        raise AssertionError("a tolerant class is scored by likelihood")

    async def surprises(self, inputs: Inputs) -> Surprises:
        self.asked.append(inputs)
        row = np.full(len(inputs.text.tokens), 2.0)
        return Surprises(row, row, row, row)


async def examiner_on(stage: Stage) -> ClientExaminer:
    await stage.session.ready()
    stage.session.own_model = LikelyModel()
    return ClientExaminer(stage.session, 1)


async def asked(examiner: ClientExaminer, openings: list[PromptOpening]) -> list[ChallengeAnswer]:
    names = {challenge.place: f"challenge-{challenge.place}" for challenge in challenges_of(openings, range(2), 16)}
    for challenge in challenges_of(openings, range(2), 16):
        await examiner.ask(names[challenge.place], challenge)
    return examiner.answers(names)


async def test_answers_are_shown_proven_and_scored_by_others(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        examiner = await examiner_on(stage)
        openings = [PromptOpening(f"{number:064x}", f"question {number}") for number in range(2)]
        answers = await asked(examiner, openings)
        assert [decode_answer(encode_answer(answer)) for answer in answers] == answers
        assert Counter(len(answer.admitted.nodes) for answer in answers) == {1: 2}
        credits = await examiner.credits(answers, openings, 0, {})
        assert set(credits) == {answer.admitted.nodes[0] for answer in answers}
        assert {credit.value for credit in credits.values()} == {ONE}
        # Asked once: what is in the journal is not asked again.
        orders = len(stage.session.journal.all())
        await asked(examiner, openings)
        assert len(stage.session.journal.all()) == orders == 2
        hosts = examiner.hosts(stage.session.block)
        assert set(credits) <= hosts.now == hosts.since


async def test_no_part_of_an_answer_can_be_changed(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        examiner = await examiner_on(stage)
        openings = [PromptOpening(f"{number:064x}", f"question {number}") for number in range(2)]
        first, second = await asked(examiner, openings)
        stranger = address_from_bytes(b"\x31" * 20)
        wrong = [
            (replace(first, tokens=(*first.tokens[:-1], first.tokens[-1] + 1)), "signed another answer"),
            (replace(first, tokens=first.tokens[:-1]), "not proven"),
            (replace(first, place=1), "asked something else"),
            (replace(first, request=second.request), "asked something else"),
            (replace(first, salt=Hash32(b"\1" * 32)), "asked something else"),
            (replace(first, admitted=second.admitted), "not proven"),
            (replace(first, admitted=replace(first.admitted, nodes=(stranger,))), "not proven"),
            (replace(first, results=second.results), "not proven"),
            (replace(first, results=Results("end", ())), "not proven"),
            (replace(first, order=second.order), "asked something else"),
            (replace(first, order=replace(first.order, signature=second.order.signature)), "did not sign"),
            (replace(first, tab=replace(first.tab, payer=stranger)), "on no open tab"),
        ]
        for answer, what in wrong:
            with pytest.raises(EpochRefused, match=what):
                await examiner.credits([answer], openings, 0, {})
        with pytest.raises(EpochRefused, match="earlier epoch"):
            await examiner.credits([first], openings, stage.session.block + 1, {})
        for answers in ([first, first], [first, replace(second, place=7)], [first, replace(second, order=first.order)]):
            with pytest.raises(EpochRefused):
                require_distinct(answers, range(2))
        with pytest.raises(EpochRefused, match="cannot be read"):
            decode_answer(b"{}")


@pytest.mark.slow
async def test_a_node_that_was_drawn_and_gave_nothing_is_silent(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        examiner = await examiner_on(stage)

        def broken(_order: object, lines: list[object]) -> list[object]:
            kept = [line for line in lines if isinstance(line, dict) and line.get("type") == "admitted"]
            return [*kept, {"type": "failed", "code": "node_silent", "message": "no answer"}]

        stage.scheduler.tamper = broken
        (challenge,) = challenges_of([PromptOpening("00" * 32, "are you there?")], range(1), 16)
        await examiner.ask("attempt", challenge)
        (entry,) = stage.session.journal.all()
        admitted = entry.read("admitted", Admitted)
        assert examiner.silent(["attempt", "never asked"]) == frozenset(admitted.nodes)
        assert not examiner.under_way(["attempt"])
        stage.scheduler.tamper = lambda _order, lines: lines
        for number in range(12):
            await examiner.ask(f"again {number}", Challenge(0, f"{number}?", 0.0, challenge.choices))
        names = {number: f"again {number}" for number in range(12)}
        served = {node for answer in examiner.answers(names) for node in answer.admitted.nodes}
        # Who answered once is not silent.
        assert examiner.silent(["attempt", *names.values()]) == frozenset(admitted.nodes) - served


def test_ordinals_agree_with_their_numbers() -> None:
    corpus, chooser = Corpus.of(["on the 21st of 12 months, 30kg"]), random.Random(1)
    form = re.compile(r"on the (\d+)(st|nd|rd|th) of (\d+) months, (\d+)kg")
    found = [form.fullmatch(corpus.rewritten(0, chooser)) for _ in range(200)]
    assert all(found)
    endings = {match[1]: match[2] for match in found if match}
    assert {day: endings[day] for day in ("1", "2", "3", "11", "12", "13", "22")} == {
        "1": "st", "2": "nd", "3": "rd", "11": "th", "12": "th", "13": "th", "22": "nd",
    }  # fmt: skip
