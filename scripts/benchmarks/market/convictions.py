"""Summons, and what convicts in one transaction; a convicted node leaves two groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.market.orders import (
    draw_verifiers,
    hash_of,
    is_typical,
    open_tab,
    proof_of,
    resigned,
    serve,
    verdicts_of,
)
from benchmarks.market.stage import ETHER, GWEI, HALF, LAYERS, PARAMETERS, WHOLE, Sent, Stage, account, key
from benchmarks.market.tabs import voucher_of
from troth.protocol.hashing import keccak256
from troth.protocol.market import claims, messages
from troth.protocol.market.events import Claimed, Convicted, Evicted, Summoned
from troth.protocol.market.messages import Signed, compact, sign, word_of
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import SummonsKind
from troth.protocol.market.signed import Opinion, Result, Row, Verdict
from troth.protocol.market.types import ExecutionClass
from troth.protocol.types import Address, Hash32

LANES = 4
"""Sizes in a word (library History)."""
NODES_FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "two results": ("convictResults", {"output_hash": hash_of("another output")}),
    "two rows": ("convictRows", {"row_hash": hash_of("another row")}),
    "two verdicts": ("convictVerdicts", {"opinion": Opinion.REJECT}),
}
"""What convicts a node, and what its second word says instead."""


@dataclass(frozen=True, slots=True)
class Summons:
    """Gas of the calls of a summons."""

    check: int
    answer_check: int
    results: int
    answer_results: int


def summon(stage: Stage, rules: ExecutionClass, node: Address) -> Summons:
    """A check and results of one segment are asked for and shown; k = 3 distinct verifiers."""
    stage.credit(stage.scheduler.address)
    check, answer_check = _check(stage, rules, node)
    results, answer_results = _results(stage, rules, node)
    return Summons(check, answer_check, results, answer_results)


def _deposit(stage: Stage, kind: SummonsKind) -> int:
    """The least at the base fee that the stage sets for each call."""
    least: int = stage.read(Part.SUMMONS, "depositFor", kind, GWEI, returns=int)
    return least


def _check(stage: Stage, rules: ExecutionClass, node: Address) -> tuple[int, int]:
    for attempt in range(100):
        leaf = serve(stage, open_tab(stage, f"summoned {attempt}"), rules, [node], name=f"summoned {attempt}")
        alpha = (leaf.digest, leaf.secrets.draw, leaf.draw.beta, leaf.draw.results)
        seed = Hash32(keccak256(messages.CHECK_TAG + b"".join(alpha)))
        verifiers, hints = draw_verifiers(stage, leaf, rules, seed)
        if len(set(verifiers)) == len(verifiers):
            break
    # Nobody looks at the key's signature: it may be left out.
    arguments = (replace(leaf.signed, signature=b""), leaf.draw, leaf.draw_signature, 0, leaf.secrets.draw)
    client = leaf.signed.client
    deposit = _deposit(stage, SummonsKind.CHECK)
    asked = stage.send(Part.SUMMONS, "summonCheck", *arguments, sender=client, value=deposit)
    event = asked.only(Summoned)
    verdicts, signatures = verdicts_of(stage, leaf, verifiers, Opinion.ACCEPT, locks=False)
    words = [word_of(Signed(*one)) for one in zip(verdicts, signatures, strict=True)]
    shown = (list(leaf.results), [compact(one) for one in leaf.result_signatures], words, hints)
    answered = stage.send(
        Part.SUMMONS, "answerCheck", event.summons_id, event.state, *shown, sender=stage.scheduler.address
    )
    return asked.gas, answered.gas


def _results(stage: Stage, rules: ExecutionClass, node: Address) -> tuple[int, int]:
    leaf = serve(stage, open_tab(stage, "without results"), rules, [node], name="without results")
    stage.mine(PARAMETERS.summons_window)
    arguments = (replace(leaf.signed, signature=b""), leaf.admission, leaf.admission_signature)
    deposit = _deposit(stage, SummonsKind.RESULTS)
    asked = stage.send(Part.SUMMONS, "summonResults", *arguments, sender=leaf.signed.client, value=deposit)
    event = asked.only(Summoned)
    draw, signature = resigned(stage, leaf.draw, stage.scheduler, block_number=stage.block)
    shown = ([node], list(leaf.results), [compact(one) for one in leaf.result_signatures], draw, signature)
    answered = stage.send(
        Part.SUMMONS, "answerResults", event.summons_id, event.state, *shown, sender=stage.scheduler.address
    )
    return asked.gas, answered.gas


# -------------------------------------------------------------------------------------------------------- convictions


def convict(stage: Stage, rules: ExecutionClass) -> dict[str, int]:
    """Gas of each kind of conviction, in a class of its own.

    Of a node's, the dearest of four: the size of a group takes a new slot with each fourth change, and both groups of
    these nodes have changed equally often. Those who came last take the convicts' places.
    """
    reporter, count = account("reporter"), len(NODES_FAULTS) * LANES
    stage.fund(reporter)
    stage.credit(reporter)
    # As many behind the convicts, which take their places, and one to pay for the burnt pot's first unit.
    names = [f"of two groups {number}" for number in range(2 * count + 1)]
    for name in names:
        stage.register_node(name, rules, WHOLE, HALF)
    nodes = [key(name).address for name in names]
    convict_node(stage, rules, nodes[-1], "two results", reporter)
    gas: dict[str, int] = {}
    for number, node in enumerate(nodes[:count]):
        name = list(NODES_FAULTS)[number // LANES]
        gas[name] = max(gas.get(name, 0), convict_node(stage, rules, node, name, reporter))
    spare = nodes[count : count + 2]
    gas |= _of_schedulers(stage, rules, spare, reporter)
    return gas | {"a promise not honoured": _of_payer(stage, spare[0], reporter)}


def convict_node(stage: Stage, rules: ExecutionClass, node: Address, name: str, reporter: Address) -> int:
    """Two words of one node for one place; the gas of their report."""
    leaf = serve(stage, open_tab(stage, f"of {node}"), rules, [node], name=f"of {node}")
    result: Result = leaf.results[0]
    messages_of: dict[str, Any] = {
        "two results": result,
        "two rows": Row(leaf.digest, 0, 7, hash_of("row"), hash_of("rows before")),
        "two verdicts": Verdict(leaf.digest, 0, leaf.result, hash_of("commitment"), Opinion.ACCEPT, False),
    }
    function, changes = NODES_FAULTS[name]
    one = sign(messages_of[name], stage.domain, stage.keys[node].secret).signature
    other, signature = resigned(stage, messages_of[name], stage.keys[node], **changes)
    sent = _report(stage, function, (messages_of[name], one, other, signature), reporter)
    assert sent.only(Evicted).operator == node
    return sent.gas


def _report(stage: Stage, function: str, arguments: Sequence[object], reporter: Address) -> Sent:
    sent = stage.send(Part.EVIDENCE, function, *arguments, sender=reporter)
    assert sent.only(Convicted)
    return sent


def _of_schedulers(stage: Stage, rules: ExecutionClass, nodes: Sequence[Address], reporter: Address) -> dict[str, int]:
    """Convictions of the stage's scheduler, which has none but its first to pay for the slots."""
    opened = open_tab(stage, "of a convicted scheduler")
    leaves = [
        serve(stage, opened, rules, [nodes[0]], sequence=number + 1, name=f"of a scheduler {number}")
        for number in range(4)
    ]
    gas = {}
    for name, leaf in zip(("", "two admissions"), leaves, strict=False):
        other = resigned(stage, leaf.admission, stage.scheduler, nodes=hash_of("other nodes"))
        arguments = (leaf.signed, leaf.admission, leaf.admission_signature, *other)
        gas[name] = _report(stage, "convictAdmissions", arguments, reporter).gas
    leaf = leaves[2]
    other = resigned(stage, leaf.draw, stage.scheduler, beta=hash_of("another beta"))
    arguments = (leaf.signed, leaf.draw, leaf.draw_signature, *other)
    gas["two draws"] = _report(stage, "convictDraws", arguments, reporter).gas
    leaf = leaves[3]
    draw, signature = resigned(stage, leaf.draw, stage.scheduler, beta=hash_of("another beta"))
    gas["another output than the VRF's"] = _report(
        stage, "convictBeta", (leaf.signed, draw, signature, leaf.draw_proof), reporter
    ).gas
    gas["a node that was not drawn"] = _wrong_node(stage, rules, nodes[0], reporter)
    halves = serve(stage, opened, rules, list(nodes), sequence=9, name="heads apart", ends=(HALF.end, LAYERS))
    results = (halves.results[0], resigned(stage, halves.results[1], stage.scheduler, input_head=hash_of("rows"))[0])
    draw, signature = resigned(stage, halves.draw, stage.scheduler, results=messages.results_hash(results))
    gas["heads that do not meet"] = _report(
        stage, "convictHeads", (halves.signed, draw, signature, list(results)), reporter
    ).gas
    del gas[""]
    return gas


def _wrong_node(stage: Stage, rules: ExecutionClass, node: Address, reporter: Address) -> int:
    outsider = account("not drawn")
    opened = open_tab(stage, "of a wrong node")
    for attempt in range(100):
        leaf = serve(stage, opened, rules, [node], name=f"of a wrong node {attempt}")
        proof = proof_of(stage, messages.infer_alpha(leaf.digest))
        if is_typical(proof):
            break
    admission, signature = resigned(stage, leaf.admission, stage.scheduler, nodes=messages.nodes_hash([outsider]))
    arguments = (leaf.signed, admission, signature, [outsider], 0, proof, b"")
    return _report(stage, "convictNodes", arguments, reporter).gas


def _of_payer(stage: Stage, node: Address, reporter: Address) -> int:
    """A node's claim on the scheduler's tab with it, which holds an ether and owes two."""
    opened = open_tab(stage, "of a promise", payee=node, tab_key=stage.scheduler)
    voucher, signature = voucher_of(stage, opened, 0, authorised=2 * ETHER, sequence=2)
    made, _ = claims.claim_of(voucher, {1: ETHER, 2: ETHER})
    sent = stage.send(Part.BANK, "claim", opened.tab, voucher, signature, made, sender=node)
    stage.mine(PARAMETERS.claim_delay)
    stage.send(Part.BANK, "settle", opened.tab, sent.only(Claimed).state, sender=node)
    return _report(stage, "convictPayer", (opened.tab,), reporter).gas
