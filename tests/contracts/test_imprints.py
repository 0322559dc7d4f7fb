"""Proofs over rows that are not shown, against the real contracts: whom they convict, and what convicts nobody."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.imprint_scene import ImprintScene, imprint_scene, test_key
from support.wrong_token_scene import Wording, write_model

from troth.audit.checks import faults
from troth.audit.report import FindingKind
from troth.audit.running import read_chain
from troth.cases.errors import NothingToDo
from troth.chain.errors import ChainRejected
from troth.node.court.accusing import accuse
from troth.node.court.imprinting import build_case
from troth.protocol import typed_data
from troth.protocol.bindings.structs import encode_values
from troth.protocol.hashing import keccak256
from troth.protocol.imprints import calls
from troth.protocol.imprints.calls import ImprintProof
from troth.protocol.imprints.poseidon import FIELD
from troth.protocol.market import token_proofs
from troth.protocol.market.calls import PartCall, build, read_call
from troth.protocol.market.parts import Part
from troth.protocol.market.token_proofs import TokenProof
from troth.protocol.market.types import PotKind
from troth.protocol.types import Address, Hash32

pytestmark = [pytest.mark.chain]

COLUMNS = 128


@pytest.fixture
async def scene(anvil: Any, tmp_path: Path) -> AsyncIterator[ImprintScene]:
    async with imprint_scene(anvil, write_model(tmp_path / "model", columns=COLUMNS), test_key(COLUMNS)) as made:
        yield made


def decoded(call: PartCall) -> TokenProof:
    """The proof that a call shows."""
    return token_proofs.decode(read_call(Part.EVIDENCE, call.call.data).value("evidence"))


def pot(scene: ImprintScene, kind: PotKind, account: Address) -> int:
    return scene.follower.state.pot(kind, account)


async def refused(scene: ImprintScene, proof: ImprintProof, recipient: Address, name: str) -> None:
    with pytest.raises(ChainRejected, match=name):
        await scene.chain.read(calls.beaten(proof, recipient))


async def test_a_wrong_token_convicts_by_its_imprint_and_pays_whom_the_proof_is_for(
    scene: ImprintScene, anvil: Any
) -> None:
    accuser, copier, node = anvil.keys[6], anvil.keys[7], scene.stage.nodes[0].address
    evidence = scene.scene.answer(Wording(800_000, forged=2, rank=9))
    text = scene.text(evidence)
    proof = await scene.prove(evidence, accuser.address)
    subject = typed_data.struct_hash(text.signed.message)
    found = await scene.chain.read(calls.beaten(proof, accuser.address))
    assert found == (node, evidence.signed_order.order.reference_block, subject)

    # Evidence pays its caller, so that the contract shows nothing to it for anybody else.
    shown = calls.evidence_of(proof, accuser.address)
    direct = build(scene.stage.market.contracts, Part.EVIDENCE, "convictByProof", shown)
    with pytest.raises(ChainRejected, match="NotByConvict"):
        await scene.send(direct.call, copier, direct.to)
    # A copy with another recipient is another statement.
    await refused(scene, proof, copier.address, "ProofDoesNotHold")

    penalty, stake = scene.stage.execution_class.penalty, pot(scene, PotKind.STAKE, node)
    await scene.convict(proof, accuser.address, copier)
    assert pot(scene, PotKind.STAKE, node) == stake - penalty
    assert pot(scene, PotKind.CREDIT, accuser.address) >= penalty // 10
    assert pot(scene, PotKind.CREDIT, copier.address) == pot(scene, PotKind.CREDIT, scene.contract) == 0
    assert await scene.chain.balance(scene.contract) == 0
    with pytest.raises(ChainRejected, match="AlreadyProven"):
        await scene.convict(proof, accuser.address, accuser)


async def test_nothing_but_what_was_signed_and_asked_for_is_proven(scene: ImprintScene, anvil: Any) -> None:
    recipient = anvil.keys[6].address
    evidence = scene.scene.answer(Wording(forged=2, rank=9))
    other = scene.scene.answer(Wording(forged=2, rank=9, seed=2))
    proof = await scene.prove(evidence, recipient)
    again = scene.text(other)

    def inputs(**changes: Any) -> ImprintProof:
        return replace(proof, **changes)

    # Elements of the field have one name.
    await refused(scene, inputs(imprint=proof.imprint + FIELD), recipient, "Mismatch")
    # Another position, rival, class, order, result or signature.
    index = proof.token.index
    await refused(scene, inputs(token=replace(proof.token, index=index ^ 1)), recipient, "Mismatch")
    await refused(scene, inputs(rival=proof.rival ^ 1), recipient, "ProofDoesNotHold")
    await refused(scene, inputs(rival=scene.stage.model.vocabulary), recipient, "NoSuchToken")
    renamed = replace(proof.execution_class, penalty=proof.execution_class.penalty + 1)
    await refused(scene, inputs(execution_class=renamed), recipient, "Mismatch")
    await refused(scene, inputs(mark=proof.mark + 1), recipient, "ImprintsNotNamed")
    await refused(scene, inputs(mark=1 << 255), recipient, "ImprintsNotNamed")
    await refused(scene, inputs(order=other.signed_order), recipient, "WrongPlace")
    result = again.signed.message
    await refused(scene, inputs(order=other.signed_order, result=result), recipient, "Mismatch")
    foreign = replace(proof.result, trace_commitment=Hash32(keccak256(b"foreign")))
    assert (await scene.chain.read(calls.beaten(proof, recipient)))[0] == scene.stage.nodes[0].address
    await refused(scene, inputs(result=foreign), recipient, "ProofDoesNotHold")
    with pytest.raises(ChainRejected, match="NoSuchProof"):
        await scene.send(
            build(scene.stage.market.contracts, Part.EVIDENCE, "convictByProof", b"\x01\x02\x03\x04").call,
            anvil.keys[6],
            scene.stage.market.contracts.evidence,
        )


async def test_a_proof_in_another_form_proves_the_same_for_the_same_recipient_alone(
    scene: ImprintScene, anvil: Any
) -> None:
    recipient = anvil.keys[6].address
    proof = await scene.prove(scene.scene.answer(Wording(forged=2, rank=9)), recipient)
    prime = 0x30644E72E131A029B85045B68181585D97816A916871CA8D3C208C16D87CFD47
    ax, ay, b0, b1, b2, b3, cx, cy = proof.points
    negated = (ax, prime - ay, b0, b1, prime - b2, prime - b3, cx, cy)
    assert (await scene.chain.read(calls.beaten(replace(proof, points=negated), recipient)))[0]
    await refused(scene, replace(proof, points=negated), anvil.keys[7].address, "ProofDoesNotHold")
    for wrong in (
        (ax, ay + prime, b0, b1, b2, b3, cx, cy),
        (ax + prime, ay, b0, b1, b2, b3, cx, cy),
        (ax, ay, b0, b1, b2, b3, cx, prime - cy),
        (ax, ay, b1, b0, b3, b2, cx, cy),
        (1, 1, b0, b1, b2, b3, cx, cy),
        (0, 0, 0, 0, 0, 0, 0, 0),
    ):
        await refused(scene, replace(proof, points=wrong), recipient, "ProofDoesNotHold")


async def test_evidence_with_bytes_that_nobody_needs_convicts_nobody(scene: ImprintScene, anvil: Any) -> None:
    accuser = anvil.keys[6]
    proof = await scene.prove(scene.scene.answer(Wording(forged=2, rank=9)), accuser.address)
    data = calls.evidence_of(proof, accuser.address)
    signed = calls.evidence_of(replace(proof, order=replace(proof.order, signature=bytes(65))), accuser.address)
    drawn = calls.evidence_of(replace(proof, draw=replace(proof.draw, proof=bytes(5_000))), accuser.address)
    for longer in (data + bytes(32), signed, drawn):
        with pytest.raises(ChainRejected, match="SurplusEvidence"):
            await scene.send(calls.convict(longer), accuser, scene.contract)
    await scene.send(calls.convict(data), accuser, scene.contract)


async def test_an_honest_answer_has_no_proof_and_other_imprints_are_seen(scene: ImprintScene, anvil: Any) -> None:
    recipient = anvil.keys[6].address
    with pytest.raises(NothingToDo, match="No token"):
        scene.case(scene.text(scene.scene.answer(Wording(800_000))), recipient)
    text = scene.text(scene.scene.answer(Wording(forged=2, rank=9)))
    forged = scene.signed(text, root=Hash32(keccak256(b"other rows")))
    with pytest.raises(NothingToDo, match="other imprints"):
        build_case(text, forged, scene.weighed(text), scene.head, (scene.contract, recipient))


async def test_the_row_itself_convicts_here_too_also_whom_its_imprints_do_not(scene: ImprintScene, anvil: Any) -> None:
    accuser, node = anvil.keys[6], scene.stage.nodes[0].address
    evidence = scene.scene.answer(Wording(forged=2, rank=9))
    text, contracts = scene.text(evidence), scene.stage.market.contracts
    hidden = await scene.prove(evidence, accuser.address)
    stake = pot(scene, PotKind.STAKE, node)
    shown = accuse(text, scene.scene.folder).build(contracts, b"")
    # Such evidence says of nobody that it is paid: it goes to Evidence.
    other = calls.convict(token_proofs.encode(decoded(shown), contracts))
    with pytest.raises(ChainRejected, match="NoSuchEvidence"):
        await scene.send(other, accuser, scene.contract)
    await scene.send(shown.call, accuser, shown.to)
    assert pot(scene, PotKind.STAKE, node) == stake - scene.stage.execution_class.penalty
    # Once, in whichever form.
    with pytest.raises(ChainRejected, match="AlreadyProven"):
        await scene.convict(hidden, accuser.address, accuser)
    # An auditor weighs the row that was shown again, and cannot tell of the one that was not.
    other_one = scene.scene.answer(Wording(forged=3, rank=9))
    await scene.convict(await scene.prove(other_one, accuser.address), accuser.address, accuser)
    place = scene.stage.market.place
    reading = await read_chain(anvil.url, place, start=place.block, last=None)
    (proven,) = (check for check in faults.CHECKS if check.number == "M10")
    kinds = [[one.kind for one in result.findings] for result in proven.report(reading.subject).results]
    assert kinds[:2] == [[FindingKind.CHEATED], [FindingKind.CHEATED, FindingKind.INCONCLUSIVE]]


async def test_the_key_of_the_contract_is_that_of_the_folder(scene: ImprintScene) -> None:
    words = await scene.chain.read(calls.key_of(COLUMNS))
    assert words == encode_values(["uint256"] * calls.KEY_WORDS, scene.key.checking.words)
    with pytest.raises(ChainRejected, match="NoKey"):
        await scene.chain.read(calls.key_of(COLUMNS + 1))


async def test_a_rounded_class_convicts_too(anvil: Any, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", columns=COLUMNS)
    async with imprint_scene(anvil, folder, test_key(COLUMNS), 1) as scene:
        accuser = anvil.keys[6]
        proof = await scene.prove(scene.scene.answer(Wording(forged=4, rank=40)), accuser.address)
        await scene.convict(proof, accuser.address, accuser)
        assert pot(scene, PotKind.CREDIT, accuser.address) >= scene.stage.execution_class.penalty // 10
