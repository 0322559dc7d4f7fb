"""Who is suspected by verifiers' notes: groups are checked more often, nobody is framed or chooses by it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from msgspec import structs
from support.toy_market import CHAIN_ID, CLASS_ID, CONTRACTS, DOMAIN, NODE_KEYS, TABLE, World
from support.toy_tab_stage import toy_stage
from unit.test_tabs_asking import SELDOM, asked
from unit.test_tabs_terms import BLOCK, offer

from troth.client.errors import ConfigurationError
from troth.client.orders.building import check_rate_of
from troth.client.orders.policy import with_suspicion
from troth.client.orders.wishes import CheckWish, Wish
from troth.protocol.errors import InvalidField
from troth.protocol.findings import HONEST_RATIO, Kind
from troth.protocol.market import canonical, lottery
from troth.protocol.market.notes import EPOCH_BLOCKS, JointEvidence, joint_evidence
from troth.protocol.market.prices import MILLION
from troth.protocol.market.suspicion import (
    LEAST_STRENGTH,
    Suspect,
    SuspectList,
    raised_rate,
    read_list,
    suspected,
    worst_of,
)
from troth.protocol.sequential import ERROR, STAKES, entering
from troth.protocol.types import Address, Hash32, Segment
from troth.scheduler.assembly import _suspects
from troth.scheduler.errors import ConfigurationInvalid
from troth.scheduler.orders.offers import check_rate

NODE, OTHER = list(NODE_KEYS)[:2]
SUSPECT = Suspect(NODE, CLASS_ID, 0, 40, 400)
"""Its groups are checked four times as often."""


def listed(*suspects: Suspect, bank: Address = CONTRACTS.bank) -> SuspectList:
    return SuspectList(CHAIN_ID, bank, BLOCK, suspects)


def written(folder: Path, known: SuspectList) -> str:
    path = folder / "suspects.json"
    path.write_bytes(canonical.encode(known))
    return str(path)


def test_the_rate_rises_with_the_root_of_the_evidence() -> None:
    assert raised_rate(50_000, LEAST_STRENGTH - 1) == 50_000
    assert raised_rate(50_000, LEAST_STRENGTH) == 100_000
    assert raised_rate(50_000, 100 * LEAST_STRENGTH) == 1_000_000
    assert raised_rate(10_000, round(1 / ERROR)) == MILLION  # who is found out is checked every time


def test_a_node_is_suspected_by_its_strongest_evidence_once_it_is_enough() -> None:
    bar = 3 / ERROR  # three choices of records
    weak, strong = JointEvidence(Kind.STATES, 9, 299.0, bar), JointEvidence(Kind.TOKENS, 7, 1_200.0, bar)
    assert suspected(NODE, CLASS_ID, 2, []) is None
    assert suspected(NODE, CLASS_ID, 2, [weak]) is None
    assert suspected(NODE, CLASS_ID, 2, [weak, strong]) == Suspect(NODE, CLASS_ID, 2, 7, 400)


def test_no_single_verifier_makes_a_suspect() -> None:
    """One owner's word is left out of every task, and of two that are shown the third found nothing."""
    owners = {Address(f"v{number}"): Address(f"o{number}") for number in range(3)}
    lie = SimpleNamespace(states=MILLION + 1, tokens=0)
    tasks = [
        SimpleNamespace(block=number, order=Hash32(bytes(32)), segment=0, owners=owners, notes={Address("v0"): lie})
        for number in range(500)
    ]
    found = joint_evidence(tasks, Kind.STATES, honest=HONEST_RATIO, shown=1, verifiers=3)  # type: ignore[arg-type]
    assert suspected(NODE, CLASS_ID, 0, [found]) is None


@pytest.mark.slow
def test_honest_groups_pay_for_few_checks_more_on_average() -> None:
    """At the very bound of what honest nodes are granted, looked at after each of a thousand tasks."""
    draw, nodes = np.random.default_rng(20261124), 2_000
    stakes, capital = np.array(STAKES)[:, None], np.zeros((len(STAKES), 2_000))
    rates, most = np.zeros(nodes), np.ones(nodes)
    for task in range(1, 1_001):
        found = draw.random(nodes) < HONEST_RATIO
        capital = (capital + entering(task)) * (1 - stakes + stakes * found / HONEST_RATIO)
        most = np.maximum(most, capital.mean(axis=0) + 1 / (2 * (task + 1)))
        rates += [raised_rate(10_000, int(one)) for one in most]
    assert rates.mean() / 1_000 < 1.03 * 10_000
    assert (most >= LEAST_STRENGTH).mean() <= 1 / LEAST_STRENGTH


def test_evidence_counts_for_its_class_and_two_epochs() -> None:
    known = listed(SUSPECT, replace(SUSPECT, node=OTHER, strength=900), replace(SUSPECT, epoch=7, strength=500))
    assert worst_of(known, CLASS_ID, {NODE}, 0) == SUSPECT
    assert worst_of(known, CLASS_ID, {NODE, OTHER}, 1) == replace(SUSPECT, node=OTHER, strength=900)
    assert worst_of(known, CLASS_ID, {NODE}, 2) is None  # old, and what is to come says nothing either
    assert worst_of(known, Hash32(bytes(32)), {NODE}, 0) is None
    assert worst_of(known, CLASS_ID, set(), 0) is None
    assert EPOCH_BLOCKS > BLOCK


def test_a_list_of_another_deployment_or_a_changed_one_is_refused() -> None:
    data = canonical.encode(listed(SUSPECT))
    assert read_list(data, chain_id=CHAIN_ID, bank=CONTRACTS.bank) == listed(SUSPECT)
    for changed, chain_id, bank in (
        (data, CHAIN_ID + 1, CONTRACTS.bank), (data, CHAIN_ID, NODE), (b" " + data, CHAIN_ID, CONTRACTS.bank),
        (data[:-1], CHAIN_ID, CONTRACTS.bank), (data.replace(b'"400"', b'"-4"'), CHAIN_ID, CONTRACTS.bank),
    ):  # fmt: skip
        with pytest.raises(InvalidField):
            read_list(changed, chain_id=chain_id, bank=bank)


def test_a_suspects_group_is_ordered_from_with_more_checks(tmp_path: Path) -> None:
    world = World()
    table = structs.replace(TABLE, suspects=written(tmp_path, listed(SUSPECT)))
    plain = offer(world)
    raised = with_suspicion(plain, world.state, BLOCK, DOMAIN, table)
    least = max(plain.quote.check_rate, plain.rules.least_check_rate)
    assert (plain.check_rate, raised.check_rate) == (least, min(4 * least, MILLION))
    assert raised.terms().check_rate == raised.check_rate
    assert check_rate_of(raised, Wish(SELDOM.choices)) == raised.check_rate
    assert check_rate_of(raised, SELDOM) == raised.check_rate  # less cannot be had, more can
    assert check_rate_of(raised, Wish(SELDOM.choices, CheckWish.read("always"))) == MILLION
    assert check_rate_of(raised, Wish(SELDOM.choices, CheckWish.read("self"))) == plain.rules.least_check_rate
    stranger = structs.replace(TABLE, suspects=written(tmp_path, listed(replace(SUSPECT, node=CONTRACTS.bank))))
    assert with_suspicion(plain, world.state, BLOCK, DOMAIN, stranger) == plain
    assert with_suspicion(plain, world.state, BLOCK, DOMAIN, TABLE) == plain


def test_a_file_that_is_no_list_of_this_market_says_so(tmp_path: Path) -> None:
    world = World()
    for known in (str(tmp_path / "none"), written(tmp_path, listed(bank=NODE))):
        with pytest.raises(ConfigurationError, match="suspects"):
            with_suspicion(offer(world), world.state, BLOCK, DOMAIN, structs.replace(TABLE, suspects=known))


async def test_the_raised_rate_stands_in_the_order_and_draws_the_answer(tmp_path: Path) -> None:
    """A cheat under suspicion is looked at as often as the terms say, which it signs results under."""
    async with toy_stage(tmp_path) as stage:
        known = written(tmp_path, listed(replace(SUSPECT, strength=round(1 / ERROR))))
        stage.session.table = structs.replace(stage.session.table, suspects=known)
        await asked(stage, SELDOM)
        (entry,) = stage.session.journal.all()
        order = entry.submission.order.message
        assert order.check_rate == raised_rate(stage.session.tab_contexts[stage.tab].offer.quote.check_rate, 10**6)
        assert order.check_rate > SELDOM.check.rate


def test_answers_of_a_suspect_are_drawn_as_much_more_often() -> None:
    """Who serves does not enter the lottery: the same secrets and outputs hit, and others besides."""
    draw = np.random.default_rng(1)
    pairs = [(Hash32(draw.bytes(32)), Hash32(draw.bytes(32))) for _ in range(2_000)]
    usual = [lottery.hits(*pair, 50_000) for pair in pairs]
    raised = [lottery.hits(*pair, raised_rate(50_000, 400)) for pair in pairs]
    assert 70 <= sum(usual) <= 130
    assert 350 <= sum(raised) <= 450
    assert all(after for before, after in zip(usual, raised, strict=True) if before)


def test_a_scheduler_advises_the_raised_rate(tmp_path: Path) -> None:
    world = World()
    served = SimpleNamespace(
        rules=SimpleNamespace(least_check_rate=50_000),
        served=SimpleNamespace(class_id=CLASS_ID),
        spans=(Segment(0, 2),),
    )
    path = written(tmp_path, listed(SUSPECT))
    known = _suspects(SimpleNamespace(suspects=Path(path)), DOMAIN)  # type: ignore[arg-type]
    assert check_rate(served, world.state, BLOCK, known) == 200_000  # type: ignore[arg-type]
    assert check_rate(served, world.state, BLOCK, listed(replace(SUSPECT, strength=99))) == 50_000  # type: ignore[arg-type]
    assert check_rate(served, world.state, BLOCK, None) == 50_000  # type: ignore[arg-type]
    assert _suspects(SimpleNamespace(suspects=None), DOMAIN) is None  # type: ignore[arg-type]
    for wrong in (tmp_path / "none", Path(written(tmp_path, listed(bank=NODE)))):
        with pytest.raises(ConfigurationInvalid, match="suspects"):
            _suspects(SimpleNamespace(suspects=wrong), DOMAIN)  # type: ignore[arg-type]
