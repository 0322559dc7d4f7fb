"""Every conviction by an evidence file alone, against the real contracts; and summons that nobody answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.court_stage import CourtStage, court_stage, hash_of, quantised
from support.tabs_stage import TabsStage

from troth.cases import evidence as files
from troth.cases.assessing import assess
from troth.cases.courtroom import CallRefused
from troth.cases.evidence import Evidence
from troth.cases.standing import signer_of
from troth.protocol.market import claims, messages
from troth.protocol.market.messages import Signed, sign, tab_id
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import Fault, SummonsKind
from troth.protocol.market.signed import Draw, Row
from troth.protocol.market.types import PotKind, Voucher
from troth.protocol.types import ZERO_HASH, Segment

pytestmark = [pytest.mark.chain, pytest.mark.slow]
HALVES = (Segment(0, 1), Segment(1, 2))


@pytest.fixture
async def court(anvil: Any, tmp_path: Path) -> AsyncIterator[CourtStage]:
    async with court_stage(anvil, tmp_path, segments=lambda _: HALVES) as made:
        yield made


def again(stage: TabsStage, signed: Signed[Any], key: Any, **changes: Any) -> Signed[Any]:
    return sign(replace(signed.message, **changes), stage.market.domain, key.secret)


def two_results(court: CourtStage, held: Evidence) -> Evidence:
    other = again(court.stage, held.results[0], court.key_of(held.nodes[0]), output_hash=hash_of("other"))
    return replace(empty(held), results=held.results[:1], other_results=(other,))


def two_rows(court: CourtStage, held: Evidence) -> Evidence:
    node = court.key_of(held.nodes[0])
    row = sign(Row(held.order_id, 0, 3, hash_of("row"), ZERO_HASH), court.stage.market.domain, node.secret)
    return replace(empty(held), signed_rows=(row, again(court.stage, row, node, row_hash=hash_of("other"))))


def two_verdicts(court: CourtStage, held: Evidence) -> Evidence:
    said = held.verdicts[0]
    verifier = court.key_of(signer_of(said, held))
    return replace(empty(held), verdicts=(said, again(court.stage, said, verifier, commitment=hash_of("other"))))


def other_commitment(court: CourtStage, held: Evidence) -> Evidence:
    said = held.verdicts[-1]
    verifier = court.key_of(signer_of(said, held))
    other = again(court.stage, said, verifier, commitment=hash_of("other"))
    return replace(empty(held), commitments=held.commitments, verdicts=(other,))


def two_admissions(court: CourtStage, held: Evidence) -> Evidence:
    other = again(court.stage, held.admissions[0], court.stage.scheduler, nodes=hash_of("others"))
    return replace(held, admissions=(*held.admissions, other))


def two_draws(court: CourtStage, held: Evidence) -> Evidence:
    other = again(court.stage, held.draws[0], court.stage.scheduler, results=hash_of("others"))
    return replace(held, draws=(*held.draws, other))


def wrong_nodes(court: CourtStage, held: Evidence) -> Evidence:
    outsider = court.stage.client.address
    nodes = (held.nodes[0], outsider)
    other = again(court.stage, held.admissions[0], court.stage.scheduler, nodes=messages.nodes_hash(nodes))
    return replace(held, admissions=(other,), nodes=nodes)


def wrong_beta(court: CourtStage, held: Evidence) -> Evidence:
    return replace(held, draws=(again(court.stage, held.draws[0], court.stage.scheduler, beta=hash_of("beta")),))


def heads_apart(court: CourtStage, held: Evidence) -> Evidence:
    node = court.key_of(held.nodes[1])
    results = (held.results[0], again(court.stage, held.results[1], node, input_head=hash_of("other")))
    named = messages.results_hash([one.message for one in results])
    draw: Signed[Draw] = again(court.stage, held.draws[0], court.stage.scheduler, results=named)
    return replace(held, results=results, draws=(draw,))


def empty(held: Evidence) -> Evidence:
    """Who holds two words of one party needs nothing else."""
    return Evidence(held.version, held.chain_id, held.bank)


FAULTS: dict[Callable[[CourtStage, Evidence], Evidence], Fault] = {
    two_results: Fault.TWO_RESULTS,
    two_rows: Fault.TWO_ROWS,
    two_verdicts: Fault.TWO_VERDICTS,
    other_commitment: Fault.TWO_VERDICTS,
    two_admissions: Fault.TWO_ADMISSIONS,
    two_draws: Fault.TWO_DRAWS,
    wrong_nodes: Fault.WRONG_NODES,
    wrong_beta: Fault.WRONG_BETA,
    heads_apart: Fault.HEADS_APART,
}


async def test_every_conviction_by_a_file(court: CourtStage, tmp_path: Path) -> None:
    reporter = court.stage.anvil.keys[8]
    opener = court.carrier(reporter).opener
    for number, (make, fault) in enumerate(FAULTS.items()):
        honest = await court.serve(cheat=quantised, parts=(1, 2))
        assert (await opener.assess(honest)).convictions == ()
        path = tmp_path / f"{number}.evidence"
        files.write(path, make(court, honest))
        held = files.read(path)
        (proof,) = [one for one in (await opener.assess(held)).convictions if one.conviction.fault is fault]
        before = court.follower.state.pot(PotKind.CREDIT, reporter.address)
        await opener.convict(proof)
        state = court.follower.state
        assert state.convictions[proof.conviction.convict][-1].fault is fault
        assert state.pot(PotKind.CREDIT, reporter.address) > before
        with pytest.raises(CallRefused):
            await opener.convict(proof)
    convicted = {one.fault for convictions in state.convictions.values() for one in convictions}
    assert convicted == set(FAULTS.values())


async def test_an_old_order_is_shown_with_its_conviction(court: CourtStage) -> None:
    """Two words do not tell how old they are: leaves since the order are void, not only since the reference age."""
    served = await court.serve(parts=(1, 2))
    node = court.key_of(served.nodes[0])
    other = again(court.stage, served.results[0], node, output_hash=hash_of("other"))
    held = replace(served, other_results=(other,))
    court.stage.anvil.mine(300)
    opener = court.carrier(court.stage.anvil.keys[8]).opener
    (proof,) = (await opener.assess(held)).convictions
    await opener.convict(proof)
    reference = served.signed_order.order.reference_block
    state = await court.follower.catch_up()
    assert state.is_void(node.address, reference)
    assert not state.is_void(node.address, reference - 50)


async def test_a_claim_left_short_convicts_the_scheduler_that_promised(court: CourtStage) -> None:
    stage, reporter = court.stage, court.stage.anvil.keys[8]
    node = stage.nodes[0]
    tab = stage.node_tab(node)
    owed = 10**16
    voucher = Voucher(tab_id(tab), 0, owed, 1, 0, 0)
    signed = sign(voucher, stage.market.domain, stage.scheduler.secret)
    made, _ = claims.claim_of(voucher, {1: owed})
    await stage.send(node, Part.BANK, "claim", tab, voucher, signed.signature, made)
    await court.follower.catch_up()
    stage.anvil.mine(901)
    record = court.follower.state.tabs[tab_id(tab)].claim
    assert record is not None
    await stage.send(node, Part.BANK, "settle", tab, record.state)
    await court.follower.catch_up()
    domain = stage.market.domain
    held = Evidence(1, domain.chain_id, domain.contract, short_tabs=(tab, stage.client_tab))
    opener = court.carrier(reporter).opener
    (proof,) = (await opener.assess(held)).convictions
    assert proof.conviction.fault is Fault.PROMISE_BROKEN
    await opener.convict(proof)
    assert court.follower.state.convictions[stage.scheduler.address][-1].fault is Fault.PROMISE_BROKEN
    assert (await opener.assess(held)).convictions == ()


async def test_a_refused_check_is_summoned_and_silence_convicts(court: CourtStage) -> None:
    served = await court.serve(parts=(1, 2))
    refused = replace(served, verdicts=(), commitments=())
    opener = court.carrier(court.stage.client).opener
    found = (await opener.assess(refused)).summons
    assert [(one.kind, one.segment) for one in found] == [(SummonsKind.CHECK, 0), (SummonsKind.CHECK, 1)]
    assert (await opener.assess(served)).summons == ()
    await opener.summon(refused, found[1])
    assert [one.segment for one in (await opener.assess(refused)).summons] == [0]
    assert await opener.end_summons() == ()
    court.stage.anvil.mine(7)
    await court.follower.catch_up()
    assert len(await opener.end_summons()) == 1
    assert court.follower.state.convictions[court.stage.scheduler.address][-1].fault is Fault.UNANSWERED


async def test_results_that_do_not_come_are_summoned(court: CourtStage) -> None:
    served = await court.serve(parts=(1, 2))
    without = replace(empty(served), order=served.order, tab=served.tab, admissions=served.admissions)
    opener = court.carrier(court.stage.client).opener
    (summon,) = (await opener.assess(without)).summons
    with pytest.raises(CallRefused):
        await opener.summon(without, summon)  # the scheduler has a window to answer first
    court.stage.anvil.mine(7)
    await opener.summon(without, summon)
    late = assess(without, court.follower.state, court.follower.block + 100)
    assert late.summons == ()
