"""Two words of one party, signed with its key by who cheats with it, and words that convict nobody."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from adversaries.on_chain import try_call
from adversaries.registry import CONVICTED, SCHEDULER_CONVICTED
from adversaries.steps import convict, evidence_of
from adversaries.trial import Trial
from troth.cases.evidence import Evidence
from troth.cases.standing import signer_of
from troth.chain.keystore import Key
from troth.protocol.market import canonical, messages
from troth.protocol.market.messages import Signed, sign
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import Fault
from troth.protocol.market.signed import Opinion, Result, Row
from troth.protocol.types import Address, Hash32

OTHER = Hash32(b"\x61" * 32)


# ------------------------------------------------------------------------------------------------------- a scheduler's


async def two_admissions(trial: Trial) -> None:
    """One order, admitted for others as well."""
    evidence = await _asked(trial)
    admission = evidence.admissions[0]
    friend = next(one.address for one in trial.network.stage.nodes if one.address not in evidence.nodes)
    other = replace(admission.message, nodes=messages.nodes_hash((friend, *evidence.nodes[1:])))
    await convict(trial, replace(evidence, admissions=(admission, _by_scheduler(trial, other))))
    trial.note_end(_convicted(trial, trial.network.scheduler, Fault.TWO_ADMISSIONS))


async def two_draws(trial: Trial) -> None:
    """One order, drawn over other results as well."""
    evidence = await _asked(trial)
    other = replace(evidence.draws[0].message, results=OTHER)
    await convict(trial, replace(evidence, draws=(*evidence.draws, _by_scheduler(trial, other))))
    trial.note_end(_convicted(trial, trial.network.scheduler, Fault.TWO_DRAWS))


async def chosen_output(trial: Trial) -> None:
    """A lottery whose number the scheduler chose, so that it hits nobody: its own proof says another one."""
    evidence = await _asked(trial)
    chosen = replace(evidence.draws[0].message, beta=OTHER)
    await convict(trial, replace(evidence, draws=(_by_scheduler(trial, chosen),)))
    trial.note_end(_convicted(trial, trial.network.scheduler, Fault.WRONG_BETA))


async def heads_apart(trial: Trial) -> None:
    """A draw over results of which the second node read other rows than the first one wrote."""
    evidence = await _asked(trial)
    first, second = evidence.results
    apart = replace(second.message, input_head=OTHER)
    named = messages.results_hash([first.message, apart])
    draw = _by_scheduler(trial, replace(evidence.draws[0].message, results=named))
    forged = sign(apart, trial.client.session.domain, _node_key(trial, 1).secret)
    await convict(trial, replace(evidence, results=(first, forged), draws=(draw,)))
    trial.note_end(_convicted(trial, trial.network.scheduler, Fault.HEADS_APART))


# ----------------------------------------------------------------------------------------------------------- a node's


async def two_rows(trial: Trial) -> None:
    """Other rows for its verifiers than for its client."""
    evidence = await _asked(trial)
    node = _node_key(trial, 0)
    one = Row(trial.order, 0, 3, Hash32(b"\x01" * 32), Hash32(b"\x02" * 32))
    rows = [sign(row, trial.client.session.domain, node.secret) for row in (one, replace(one, row_hash=OTHER))]
    await convict(trial, replace(evidence, signed_rows=tuple(rows)))
    trial.note_end(_convicted(trial, node.address, Fault.TWO_ROWS))


async def two_verdicts(trial: Trial) -> None:
    """Yes for the scheduler that pays, and no for whoever pays more."""
    evidence = await _asked(trial)
    verifier = _signer(trial, trial.verifiers[0][0])
    said = next(one for one in evidence.verdicts if _is_of(one, verifier, evidence))
    other = sign(replace(said.message, opinion=Opinion.REJECT), trial.client.session.domain, verifier.secret)
    await convict(trial, replace(evidence, verdicts=(*evidence.verdicts, other), other_results=()))
    trial.note_end(_convicted(trial, verifier.address, Fault.TWO_VERDICTS))


async def another_trace(trial: Trial) -> None:
    """A verdict by another trace than the one that its verifier had committed to."""
    evidence = await _asked(trial)
    verifier = _signer(trial, trial.verifiers[0][0])
    place = next(one for one in evidence.commitments if _is_of(one, verifier, evidence))
    before = sign(replace(place.message, commitment=OTHER), trial.client.session.domain, verifier.secret)
    await convict(trial, replace(evidence, commitments=(before,)))
    trial.note_end(_convicted(trial, verifier.address, Fault.TWO_VERDICTS))


async def convicts_itself(trial: Trial) -> None:
    """A node that will be found convicts itself first: nine tenths are gone all the same."""
    one, other = await _both_results(trial)
    stage, node = trial.network.stage, _node_key(trial, 0)
    arguments = (one.message, one.signature, other.message, other.signature)
    await stage.send(stage.owner_of(node), Part.EVIDENCE, "convictResults", *arguments)
    await trial.network.follower.catch_up()
    trial.note_end(_convicted(trial, node.address, Fault.TWO_RESULTS))


async def leaves_first(trial: Trial) -> None:
    """Who has cheated deregisters at once; its stake stays until everything against it has had its time."""
    one, other = await _both_results(trial)
    stage, node = trial.network.stage, _node_key(trial, 0)
    owner = stage.owner_of(node)
    await stage.send(owner, Part.REGISTRY, "deregister", node.address)
    await try_call(trial, owner, Part.REGISTRY, "withdrawStake", node.address)
    said = trial.found.said
    await convict(trial, replace(evidence_of(trial), other_results=(other,)))
    trial.found.said = said
    assert one != other
    trial.note_end(_convicted(trial, node.address, Fault.TWO_RESULTS))


# ------------------------------------------------------------------------------------------------- nobody is convicted


async def frames_a_node(trial: Trial) -> None:
    """A second result under a node's name, which it did not sign."""
    evidence = await _asked(trial)
    one = evidence.results[0]
    other = sign(replace(one.message, trace_commitment=OTHER), trial.client.session.domain, trial.client.key.secret)
    arguments = (one.message, one.signature, other.message, other.signature)
    await try_call(trial, trial.client.key, Part.EVIDENCE, "convictResults", *arguments)


async def one_word_twice(trial: Trial) -> None:
    """One result, shown as two."""
    one = (await _asked(trial)).results[0]
    arguments = (one.message, one.signature, one.message, one.signature)
    await try_call(trial, trial.client.key, Part.EVIDENCE, "convictResults", *arguments)


async def convicts_twice(trial: Trial) -> None:
    """The same pair, turned round: one place convicts once."""
    one, other = await _both_results(trial)
    await convict(trial, replace(evidence_of(trial), other_results=(other,)))
    arguments = (other.message, other.signature, one.message, one.signature)
    await try_call(trial, trial.client.key, Part.EVIDENCE, "convictResults", *arguments)


# ------------------------------------------------------------------------------------------------------ what they share


async def _asked(trial: Trial) -> Evidence:
    """An answer that was checked and paid."""
    await trial.ask_until_served()
    await trial.until(lambda: trial.entry.paid is not None, "the client's payment")
    return evidence_of(trial)


async def _both_results(trial: Trial) -> tuple[Signed[Result], Signed[Result]]:
    """The result that its client has, and the other one that the node signed."""
    evidence = await _asked(trial)
    shared = trial.network.notes.shared(trial.order)
    assert shared is not None, "the node signed one result"
    return evidence.results[0], canonical.decode(Signed[Result], shared, len(shared))


def _by_scheduler(trial: Trial, message: Any) -> Signed[Any]:
    return sign(message, trial.client.session.domain, trial.network.stage.scheduler.secret)


def _node_key(trial: Trial, segment: int) -> Key:
    return _signer(trial, trial.nodes[segment])


def _signer(trial: Trial, node: Address) -> Key:
    return next(one for one in trial.network.stage.nodes if one.address == node)


def _is_of(one: Signed[Any], key: Key, evidence: Evidence) -> bool:
    return one.message.segment == 0 and signer_of(one, evidence) == key.address


def _convicted(trial: Trial, who: Address, fault: Fault) -> str:
    if not trial.convicted(who, fault):
        return "nobody convicted"
    return SCHEDULER_CONVICTED if who == trial.network.scheduler else CONVICTED


SCRIPTS: dict[str, Callable[[Trial], Awaitable[None]]] = {
    one.__name__: one
    for one in (
        two_admissions,
        two_draws,
        chosen_output,
        heads_apart,
        two_rows,
        two_verdicts,
        another_trace,
        convicts_itself,
        leaves_first,
        frames_a_node,
        one_word_twice,
        convicts_twice,
    )
}
