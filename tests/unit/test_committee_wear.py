"""How worn a member's corpus is: counted by text, kept on disk, and said before nodes tell its lists."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import pytest
from unit.test_committee_own_corpus import OWN, SMALL, member_file

from troth.committee.configuration import MemberConfiguration
from troth.committee.corpus.own import AskingPlan, make_corpus
from troth.committee.corpus.prompts import MOST_PROMPTS
from troth.committee.corpus.wear import AHEAD, USES, CorpusWear, lists_of, prompts_of_list
from troth.committee.errors import MemberConfigurationInvalid
from troth.committee.examining import examine
from troth.committee.rating.challenges import new_openings
from troth.committee.rating.epochs import ExaminedList
from troth.committee.rating.running import rating
from troth.committee.rating.store import RECORDS, EpochStore
from troth.protocol.types import Hash32

TEN = [f"0x{number:040x}" for number in range(1, 11)]


def test_each_text_is_as_worn_as_lists_made_it(tmp_path: Path) -> None:
    store, openings = EpochStore(tmp_path / RECORDS), new_openings(40, lambda text: True)
    store.keep_openings(5, openings[:30], OWN[:100])
    store.keep_attempts(5, Hash32(bytes(32)), openings[30:], OWN[:100])
    assert store.uses(OWN[:100]) == pytest.approx(0.4)
    # What another member opened wears nobody's corpus.
    store.keep_openings(6, new_openings(30, lambda text: True))
    store.close()
    store = EpochStore(tmp_path / RECORDS)
    assert store.uses(OWN[:100]) == pytest.approx(0.4)
    # A corpus that grows has its old texts, and one that has others is fresh.
    assert store.uses(OWN[:200]) == pytest.approx(0.2)
    assert store.uses(OWN[100:200]) == 0
    # What epochs forget is still worn.
    store.forget_before(100)
    assert store.uses(OWN[:100]) == pytest.approx(0.4)
    store.close()


def test_the_list_that_nodes_tell_is_named_and_a_quarter_before_it_is_warned() -> None:
    wear = CorpusWear(texts=1000, uses=AHEAD * USES - 0.01, listed=400)
    assert wear.first_told == USES * 1000 // 400 + 1
    assert lists_of(1000, 400) == wear.first_told - 1
    assert wear.warning is None
    near = CorpusWear(1000, AHEAD * USES, 400)
    assert near.warning is not None
    assert f"from list {near.first_told} on" in near.warning
    assert f": {AHEAD * USES * 1000:,.0f} challenges made of 1,000 texts" in near.warning
    assert "troth committee reputation corpus" in near.warning
    # No list has more than the longest that there may be.
    assert prompts_of_list(4, 50) == 400
    assert prompts_of_list(4, 256) == MOST_PROMPTS
    # Twice as many texts last for twice as many lists, and a list of twice as many prompts half as long.
    assert lists_of(2000, 400) == 2 * lists_of(1000, 400) == lists_of(4000, 800)


def used(configuration: MemberConfiguration, prompts: float) -> None:
    """A member that has lists of ten nodes, and made so many prompts of each text."""
    assert configuration.rating is not None
    texts = configuration.rating.terms.texts
    store, made = EpochStore(configuration.folder / RECORDS), new_openings(1000, lambda text: True)
    store.keep_list(1, Hash32(bytes(32)), msgspec.json.encode(ExaminedList(TEN)))
    for start in range(0, round(prompts * len(texts)), 1000):
        store.keep_openings(2, made[: round(prompts * len(texts)) - start], texts)
    store.close()


@pytest.mark.slow
@pytest.mark.parametrize(("part", "warned"), [(AHEAD - 0.05, False), (AHEAD + 0.05, True)])
async def test_doctor_and_start_say_it_before_lists_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, part: float, warned: bool
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    make_corpus(OWN, home / "own.txt", SMALL)
    configuration = member_file(home, "corpus = 'own.txt'\n")
    used(configuration, part * USES)
    file = home / "committee.toml"
    file.write_text(file.read_text().replace("[listen]", f'committee = "0x{"22" * 20}"\n[listen]'))
    findings = {one.check: one for one in await examine(home)}
    first = int(USES * len(OWN) / 80) + 1
    assert findings["corpus"].ok
    assert findings["wear"].ok is not warned
    assert f"from list {first} on" in findings["wear"].seen
    assert f"Before list {first}, make another corpus" in findings["wear"].fix
    with caplog.at_level(logging.WARNING), pytest.raises(Exception, match="cannot be read"):
        async with rating(configuration, None, tmp_path / "none", None):  # type: ignore[arg-type]
            pass
    assert any("wears out" in record.message for record in caplog.records) is warned


def test_a_member_that_never_rated_has_a_fresh_corpus_and_no_file_of_it(tmp_path: Path) -> None:
    configuration = member_file(tmp_path / "home", "")
    assert configuration.rating is not None
    wear = configuration.rating.terms.wear_in(configuration.folder)
    assert (wear.uses, wear.listed) == (0, 400)
    assert not (configuration.folder / RECORDS).exists()


@pytest.mark.slow
async def test_records_of_another_format_are_a_finding(tmp_path: Path) -> None:
    configuration = member_file(tmp_path / "home", "")
    store = EpochStore(configuration.folder / RECORDS)
    store._database.execute("PRAGMA user_version = 77")
    store.close()
    with pytest.raises(MemberConfigurationInvalid):
        EpochStore(configuration.folder / RECORDS)
    file = configuration.folder / "committee.toml"
    file.write_text(file.read_text().replace("[listen]", f'committee = "0x{"22" * 20}"\n[listen]'))
    findings = {one.check: one for one in await examine(configuration.folder)}
    assert not findings["wear"].ok


def test_the_command_says_how_many_lists_and_epochs_a_corpus_lasts(tmp_path: Path) -> None:
    plan = AskingPlan(nodes=10, members=4, prompts=2, attempts=4)
    made = make_corpus(OWN, tmp_path / "own.txt", plan)
    # A list has 40 prompts; of four epochs a member leads one, and asks four times four by itself.
    lists, epochs = USES * len(OWN) // 40, USES * len(OWN) / (40 / 4 + 4)
    assert made["lasts"].startswith(f"{lists} lists of 40 prompts, {epochs:.0f} epochs")
