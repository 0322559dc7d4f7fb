"""What somebody does to another party's place, money or log; and nodes and schedulers that do not pay each other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing

from adversaries.claim_scripts import PATIENCE
from adversaries.network import ASK
from adversaries.on_chain import claim_of, node_word, record_of, try_call, until_settled, until_struck
from adversaries.plan import key_of
from adversaries.registry import CLAIMED
from adversaries.steps import send, without_summons
from adversaries.trial import Trial
from troth.client.errors import ClientError
from troth.protocol.market import claims
from troth.protocol.market.messages import Signed, sign, tab_id
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import LogCounts
from troth.protocol.market.types import Consent, Movement, NodeRegistration, PotKind, Voucher
from troth.protocol.types import Hash32, address_to_bytes

STRANGER = "stranger"


# ------------------------------------------------------------------------------------------ a node and its scheduler


async def node_claims_unserved(trial: Trial) -> None:
    """A node signs no result, and claims the promise: the scheduler's own program objects, and strikes."""
    words = []
    try:
        with without_summons(trial):
            async with aclosing(send(trial)) as steps:
                async for _ in steps:
                    words += [node_word(trial, trial.nodes[0])] if trial.nodes else []
    except ClientError as error:
        trial.found.said = error.what
    assert words, "the order was not served"
    # The word with the promise comes before the first token, and the one without it once the order has failed.
    tab, signed = max(words, key=lambda one: _unpaid(one[1]))
    stage, number, worth = trial.network.stage, signed.message.sequence, _unpaid(signed)
    made, _ = claims.claim_of(signed.message, {number: worth})
    owner = stage.owner_of(next(one for one in stage.nodes if one.address == tab.payee))
    trial.note_answered()
    await stage.send(owner, Part.BANK, "claim", tab, signed.message, signed.signature, made)
    await trial.network.follower.catch_up()
    await until_struck(trial, tab_id(tab))


def _unpaid(signed: Signed[Voucher]) -> int:
    return signed.message.authorised - signed.message.spent


async def never_pays_nodes(trial: Trial) -> None:
    """A scheduler acknowledges nothing to its nodes: each claims by itself, and is paid."""
    await trial.ask(check="always")
    inferencer, signed = node_word(trial, trial.nodes[0])
    tab = tab_id(inferencer)
    before = record_of(trial, tab).redeemed
    await trial.network.wind(PATIENCE * trial.client.session.parameters.lag + 2)
    await trial.until(lambda: record_of(trial, tab).claim is not None, "the node's claim")
    owed = claim_of(trial, tab).state.owed - max(before, signed.message.spent)
    paid = await until_settled(trial, tab) - before
    trial.note_end(CLAIMED if paid >= owed > 0 else f"paid {paid} of {owed}")


# ------------------------------------------------------------------------------------- other parties' places and money


async def deregisters_another(trial: Trial) -> None:
    """Nobody makes another one leave."""
    node = trial.network.stage.nodes[0]
    await try_call(trial, key_of(STRANGER), Part.REGISTRY, "deregister", node.address)


async def evicts_honest(trial: Trial) -> None:
    """A node whose stake covers its seats stays."""
    node = trial.network.stage.nodes[0]
    await try_call(trial, key_of(STRANGER), Part.REGISTRY, "evict", node.address)


async def redirects_payout(trial: Trial) -> None:
    """A stolen operator key works, and sends the money nowhere else."""
    node = trial.network.stage.nodes[0]
    await try_call(trial, node, Part.REGISTRY, "setPayout", node.address, key_of(STRANGER).address)


async def seen_consent(trial: Trial) -> None:
    """A consent that was seen on its way registers its operator for nobody else."""
    stage, newcomer = trial.network.stage, key_of("newcomer")
    consent = sign(Consent(key_of("owner of newcomer").address, newcomer.address), stage.market.domain, newcomer.secret)
    spans, seat = trial.network.plan.segments, stage.execution_class.seat
    registration = NodeRegistration(
        operator=newcomer.address,
        payout=key_of(STRANGER).address,
        execution_class=stage.class_id,
        first=spans[0].first,
        end=spans[-1].end,
        segments=spans,
        asks=tuple(ASK for _ in spans),
        stake=seat,
        endpoint="https://127.0.0.1:1",
        tls_key_hash=Hash32(b"\x02" * 32),
    )
    arguments = (registration, consent.signature)
    await try_call(trial, key_of(STRANGER), Part.REGISTRY, "registerNode", *arguments, value=seat)


async def moves_by_hand(trial: Trial) -> None:
    """Money moves by the market's contracts alone."""
    stage, mine = trial.network.stage, key_of(STRANGER).address
    stake, credit = _pot(stage.scheduler.address), _pot(mine)
    moved = [Movement(PotKind.STAKE, stake, PotKind.CREDIT, credit, 10**9)]
    await try_call(trial, key_of(STRANGER), Part.BANK, "move", Hash32(b"\x07" * 32), moved)


async def anothers_log(trial: Trial) -> None:
    """Who is no scheduler posts nothing; a scheduler posts to its own log alone."""
    counts = LogCounts(*(0 for _ in LogCounts.__slots__))
    root = Hash32(b"\x08" * 32)
    await try_call(trial, key_of(STRANGER), Part.LOG, "post", 1, root, counts, root)


async def frees_stake(trial: Trial) -> None:
    """Stake of who has not left is nobody's to withdraw, not even its owner's."""
    stage, node = trial.network.stage, trial.network.stage.nodes[0]
    await try_call(trial, stage.owner_of(node), Part.REGISTRY, "withdrawStake", node.address)


def _pot(account: str) -> Hash32:
    return Hash32(bytes(12) + address_to_bytes(account))


SCRIPTS: dict[str, Callable[[Trial], Awaitable[None]]] = {
    one.__name__: one
    for one in (
        node_claims_unserved,
        never_pays_nodes,
        deregisters_another,
        evicts_honest,
        redirects_payout,
        seen_consent,
        moves_by_hand,
        anothers_log,
        frees_stake,
    )
}
