"""Reputation in the explorer: from a real chain's epochs, and as its pages and files show it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Anvil
from support import contract_reads
from support.explorer_stage import CASES, RATED, home_of, reproduce
from support.market_record import PLACE
from support.market_scene import DOMAIN
from support.reputation_record import CONTRACT, RULES, ratings_reading
from support.reputation_stage import REGISTRY_CREATION, ReputationStage, reputation_stage

from troth.audit.services import ReadServices
from troth.chain.deployment import submit
from troth.chain.errors import WrongChain
from troth.chain.reputation_reading import Known, LeaderCheck, ReputationReading, checked_leader, read_reputation
from troth.explorer.index import ExplorerIndex
from troth.explorer.reading import INDEX_FILE
from troth.explorer.reputation import earliest_return
from troth.explorer.site import Site
from troth.protocol import reputation_calls as calls
from troth.protocol import vrf
from troth.protocol.reputation import ONE, ReputationPlace, Standing, paper_rules, rated, shared_scores
from troth.protocol.reputation_events import EpochSettled, NodeRated, parse_reputation_log
from troth.protocol.types import Address

GOOD, BAD = 980_000_000, 100_000_000
EPOCHS = 4


# ---- a real chain


@pytest.fixture
async def epochs(anvil: Anvil) -> AsyncIterator[ReputationStage]:
    """Four epochs of two nodes: one led by the seed, two by proofs, then by the seed again; one node cheats."""

    def fund(account: Address, amount: int) -> None:
        anvil.rpc("anvil_setBalance", account, hex(amount))

    made = await reputation_stage(anvil.url, anvil.keys[5], anvil.mine, paper_rules(40, 0), fund, members=4, nodes=2)
    first, second = made.nodes
    leader = None
    for epoch in range(1, EPOCHS + 1):
        await made.to_epoch(epoch)
        seed = await made.chain.read(calls.seed_of(epoch))
        lead = made.proof(leader, epoch, seed) if leader is not None and epoch < EPOCHS else None
        update = await made.update(None if epoch == 1 else {first: GOOD, second: BAD}, proof=lead)
        await made.settle(update, lead or calls.NO_PROOF)
        leader = update.leader
    yield made
    await made.chain.close()


async def registry_of(stage: ReputationStage) -> Address:
    (log, *_) = await stage.chain.logs(0, await stage.chain.block_number())
    reading = ReputationReading(ReputationPlace(stage.contract), 0)
    event = parse_reputation_log(log)
    assert event is not None
    reading.take(event)
    assert reading.state.deployed is not None
    return reading.state.deployed.registry


@pytest.mark.chain
@pytest.mark.slow
async def test_epochs_are_read_with_their_gas_and_their_leaders_proofs_are_checked(epochs: ReputationStage) -> None:
    registry, place, known = await registry_of(epochs), ReputationPlace(epochs.contract), Known()
    found = await read_reputation(epochs.url, place, registry, known=known)
    assert [one.leader for one in found.epochs] == [LeaderCheck.BY_SEED, *[LeaderCheck.PROVED] * 2, LeaderCheck.BY_SEED]
    settled = epochs.receipts[-EPOCHS:]
    assert [one.gas for one in found.epochs] == [receipt.gas_used for receipt in settled]
    assert [(one.event.signers, one.scored, one.silent) for one in found.epochs] == [(3, 0, 0)] + [(3, 2, 0)] * 3
    assert {node: one.score for node, one in found.state.standings.items()} == {
        node: (await epochs.chain.read(contract_reads.standing_of(node))).score for node in epochs.nodes
    }
    assert len(known) == EPOCHS
    # Each settlement is looked up once.
    marked: Known = dict.fromkeys(known, (LeaderCheck.UNSEEN, 7))
    again = await read_reputation(epochs.url, place, registry, known=marked)
    assert {(one.leader, one.gas) for one in again.epochs} == {(LeaderCheck.UNSEEN, 7)}
    (other,) = [(await submit(epochs.url, REGISTRY_CREATION, epochs.payer)).created]
    assert other is not None
    with pytest.raises(WrongChain, match="another market"):
        await read_reputation(epochs.url, place, other)


@pytest.mark.chain
@pytest.mark.slow
async def test_a_leader_that_was_not_drawn_is_seen(epochs: ReputationStage) -> None:
    """What no contract would take: each part of a settlement's input is changed once."""
    registry = await registry_of(epochs)
    found = await read_reputation(epochs.url, ReputationPlace(epochs.contract), registry)
    event = found.epochs[2].event
    before = ReputationReading(found.place, found.block)
    for log in await epochs.chain.logs(0, event.meta.block - 1):
        parsed = parse_reputation_log(log)
        assert parsed is None or before.take(parsed)
    data, domain = await epochs.chain.transaction_input(event.meta.transaction), epochs.chain.domain
    state = before.state

    def seen(given: EpochSettled = event, sent: bytes = data, members: tuple[Address, ...] = epochs.members) -> str:
        return checked_leader(domain, state, given, sent, members).value

    assert seen() == "proved"
    for wrong in (
        replace(event, leader=next(one for one in epochs.members if one != event.leader)),
        replace(event, drawn=False),
        replace(event, epoch=event.epoch + 1),
        replace(event, digest=event.next_list),
    ):
        assert seen(wrong) == "wrong", wrong
    proof = epochs.proof(state.leader, event.epoch, await epochs.chain.read(calls.seed_of(event.epoch)))
    assert proof.proof in data
    forged = data.replace(proof.proof[:33], proof.proof[:1] + vrf.prove(b"\7" * 32, b"other")[1:33])
    assert seen(sent=forged) == "wrong"
    assert (seen(sent=b""), seen(sent=data[:50]), seen(members=())) == ("unseen",) * 3


# ---- pages


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return home_of(tmp_path)


def test_pages_say_who_takes_no_work_and_from_when_it_may_again(home: Path) -> None:
    honest, cheat, silent = RATED
    site = Site.open(home / INDEX_FILE)
    figure = json.loads(site.figure("reputation", {}).as_json())
    rows = {row["operator"]: row for row in figure["rows"]}
    assert [rows[one]["below_the_bar"] for one in (honest, cheat)] == [0, 1]
    assert (rows[silent]["silent"], rows[silent]["epochs"]) == (1, 6)
    back = rows[cheat]["earliest_epoch"]
    assert back > 6
    page = site.page("reputation")
    for words in ("by VRF, proof holds", "by the seed", "not seen", "Below the bar", "troth explorer show epochs"):
        assert words in page, words
    assert honest in page
    assert cheat not in site.page("reputation", {"state": "trusted"})
    node = site.page(f"nodes/{cheat}")
    assert "takes no work" in node
    assert f"back in epoch {back} at the earliest" in node
    assert "What members say of it" not in site.page(f"nodes/{next(iter(_unrated(site)))}")
    ratings = site.figure("ratings", {"operator": cheat})
    assert [row[1:4] for row in ratings.rows] == [(epoch, ONE // 5, 0) for epoch in range(5, -1, -1)]
    newest = site.figure("epochs", {}).as_csv().splitlines()[1].split(",")
    assert (newest[0], newest[3], newest[7]) == ("5", "unseen", "")
    site.close()


def _unrated(site: Site) -> list[str]:
    return [row[0] for row in site.figure("nodes", {}).rows if row[0] not in RATED]


def test_a_node_is_back_in_the_epoch_that_is_named_and_not_before() -> None:
    reading = ratings_reading(RATED)
    cheat = CASES.node
    back = earliest_return(reading.state.standings, cheat, RULES, reading.epoch)
    assert back is not None
    standings = dict(reading.state.standings)
    for epoch in range(reading.epoch, back):
        assert shared_scores(standings)[cheat] < RULES.bar
        standings[cheat] = rated(standings[cheat], ONE, epoch, RULES)
    assert shared_scores(standings)[cheat] >= RULES.bar
    # An owner's other nodes that stand at nothing hold it down for ever.
    mine = standings[cheat]
    crowd = {cheat: mine, **{node: Standing(0, 31, 9, 5, mine.owner) for node in RATED if node != cheat}}
    assert earliest_return(crowd, cheat, RULES, reading.epoch) is None


def test_a_score_that_does_not_follow_is_said_and_a_later_look_replaces(home: Path) -> None:
    reading = ratings_reading(RATED)
    wrong = NodeRated(RATED[0], reading.state.standings[RATED[0]].owner, 9, ONE, False, 5, 0, reading.ratings[0].meta)
    assert not reading.take(wrong)
    index = ExplorerIndex.open(home / INDEX_FILE, DOMAIN.chain_id, PLACE)
    index.served(ReadServices(None, None, (), reading), reproduce)
    site = Site.open(home / INDEX_FILE)
    assert "Events do not fit together: A score does not follow" in site.page("reputation")
    index.served(ReadServices(None, None, (), ratings_reading(RATED, 2)), reproduce)
    assert "do not fit" not in site.page("reputation")
    assert len(site.figure("epochs", {}).rows) == 2
    assert site.database.execute("SELECT contract FROM reputation_rules").fetchone() == (CONTRACT,)
    site.close()
    index.close()
