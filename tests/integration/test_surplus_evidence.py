"""Evidence is as long as what is looked at in it: its bytes are paid for, and cost a convict's own contract little."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.token_trials import Trial, token_trial
from support.wrong_token_scene import Wording

from troth.cases.calls import NO_PROOF, convict_by_proof
from troth.cases.evidence import Evidence
from troth.protocol.market import token_proofs
from troth.protocol.market.calls import read_call
from troth.protocol.market.messages import state_hash
from troth.protocol.market.parts import Part
from troth.protocol.market.token_proofs import TokenProof

pytestmark = [pytest.mark.chain]

WORD = 32
PARTS = {
    "class": (1, 1), "model": (2, 0), "signature": (12,), "request": (13, 0), "token's siblings": (15, 3),
    "row": (16, 3), "later rows": (16, 4), "head's name": (18, 0), "head's dtype": (18, 1), "head's siblings": (18, 6),
    "claimed row": (19, 0), "its siblings": (19, 1), "better row": (20, 0), "its own siblings": (20, 1),
}  # fmt: skip
"""Of a proof in calldata, words in which offsets of parts stand, and of parts of these."""

Trials = Callable[..., AbstractAsyncContextManager[Trial]]


@pytest.fixture
def trials(anvil: Any, tmp_path: Path) -> Trials:
    return partial(token_trial, anvil, tmp_path)


async def test_a_proof_among_bytes_that_nobody_needs_convicts_nobody(trials: Trials) -> None:
    """Evidence pays for each byte: a convict's own contract would make up zeros until they are all of its penalty."""
    async with trials() as trial:
        contracts = trial.scene.stage.market.contracts
        call = trial.accuse(trial.scene.answer(Wording(forged=2, rank=9))).build(contracts, b"")
        data = read_call(Part.EVIDENCE, call.call.data).value("evidence")
        gap = data[:4] + (0x40).to_bytes(32, "big") + bytes(32) + data[36:]
        for longer in (data + bytes(1), data + bytes(32), data + bytes(50_000), gap):
            rejection = (await trial.opener.courtroom.simulate(convict_by_proof(contracts, longer))).rejection
            assert rejection is not None, "it convicts, and is paid for"
            assert rejection.name == "SurplusEvidence"
        await trial.opener.courtroom.send(convict_by_proof(contracts, data))


async def test_a_proof_of_words_that_nobody_looks_at_or_registered_convicts_nobody(trials: Trials) -> None:
    """As zeros behind the proof: each byte of them would take four gas of what is to be burnt."""
    async with trials() as trial:
        scene, stage = trial.scene, trial.scene.stage
        contracts, wording = stage.market.contracts, Wording(forged=2, rank=9)

        def shown(evidence: Evidence) -> TokenProof:
            call = trial.accuse(evidence).build(contracts, b"")
            return token_proofs.decode(read_call(Part.EVIDENCE, call.call.data).value("evidence"))

        honest, registered = shown(scene.answer(wording)), stage.execution_class
        assert honest.draw == NO_PROOF
        zeros = 50_000
        bad = [
            replace(honest, order=replace(honest.order, signature=bytes(zeros))),
            replace(honest, draw=replace(honest.draw, proof=bytes(zeros))),
            replace(honest, draw=replace(honest.draw, hints=(0,) * (zeros // 32))),
        ]
        # A node may sign for an order of any class, which names any model: as long as it likes.
        for model, name in (
            (stage.model, "x" * zeros + registered.name),
            (replace(stage.model, architecture="x" * zeros), registered.name),
        ):
            own = replace(registered, name=name, model=state_hash(model))
            scene.stage = replace(stage, execution_class=own, model=model)
            bad.append(shown(scene.answer(wording)))
            scene.stage = stage
        for proof in bad:
            evidence = convict_by_proof(contracts, token_proofs.encode(proof, contracts))
            rejection = (await trial.opener.courtroom.simulate(evidence)).rejection
            assert rejection is not None, "it convicts, and is paid for"
            assert rejection.name == "SurplusEvidence"
        await trial.opener.courtroom.send(convict_by_proof(contracts, token_proofs.encode(honest, contracts)))


def length_of(data: bytes, part: tuple[int, ...]) -> int:
    """Where the length of a part stands."""
    place = 4 + int.from_bytes(data[4 : 4 + WORD], "big")
    for word in part:
        place += int.from_bytes(data[place + WORD * word : place + WORD * (word + 1)], "big")
    return place


async def test_a_part_that_says_it_is_longer_convicts_nobody(trials: Trials) -> None:
    """The bytes behind would count as its own: who reads it finds other words than were signed, or none so far."""
    async with trials() as trial:
        contracts = trial.scene.stage.market.contracts
        call = trial.accuse(trial.scene.answer(Wording(forged=2, rank=9))).build(contracts, b"")
        data = read_call(Part.EVIDENCE, call.call.data).value("evidence")
        place = length_of(data, PARTS["signature"])
        assert int.from_bytes(data[place : place + WORD], "big") == 65
        for name, part in PARTS.items():
            place = length_of(data, part)
            length = int.from_bytes(data[place : place + WORD], "big")
            step = 1 if name.endswith(("siblings", "later rows")) else WORD
            for said, zeros in ((length + step, WORD), (length + 2**32, 0), (length + 2**64, 0), (2**256 - step, 0)):
                longer = data[:place] + said.to_bytes(WORD, "big") + data[place + WORD :] + bytes(zeros)
                rejection = (await trial.opener.courtroom.simulate(convict_by_proof(contracts, longer))).rejection
                assert rejection is not None, (name, said)
        await trial.opener.courtroom.send(convict_by_proof(contracts, data))
