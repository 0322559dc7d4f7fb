"""Proving over a row that is not shown: what the circuit takes, and the proof that snarkjs makes of it.

A key comes from a ceremony (``troth.protocol.imprints.keys``). The program `snarkjs` does the rest.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from troth.cases.calls import NO_PROOF, proof_of
from troth.cases.errors import NothingToDo
from troth.node.court.accusing import OTHERWISE, AccusedText, Beaten, find_beaten, row_of
from troth.node.engine.head import weight_numbers
from troth.node.errors import ProofFailed
from troth.node.models.tensor_files import RawTensor
from troth.protocol import typed_data
from troth.protocol.errors import InvalidNumbers
from troth.protocol.imprints.calls import ImprintProof
from troth.protocol.imprints.keys import ProvingKey, second_group
from troth.protocol.imprints.naming import Imprints, imprints_of, mark_of
from troth.protocol.imprints.rows import HeadTree, RoundedRow, RowKind, imprints_path, imprints_root, round_row
from troth.protocol.imprints.weighing import context_of, noise_lead, terms_of, weigh
from troth.protocol.market import messages
from troth.protocol.market.messages import Signed
from troth.protocol.market.token_proofs import ShownRequest, ShownToken
from troth.protocol.request import request_terms, token_blind, token_path
from troth.protocol.tensors import Dtype
from troth.protocol.types import Address

log = logging.getLogger(__name__)

SECONDS = 600.0
"""For one proof; some seconds are usual."""
TELLING_SECONDS = 10.0


def answer_imprints(text: AccusedText) -> list[int]:
    """The imprints of the rows that chose an answer's tokens."""
    return [round_row(row, RowKind.STATE).imprint() for row in text.states]


# ------------------------------------------------------------------------------------------------------- what is proven


@dataclass(frozen=True, slots=True)
class WeighedToken:
    """A token that is beaten over rounded rows: its place, its rival, and all three rows."""

    place: int
    pair: tuple[int, int]
    lead: int
    state: RoundedRow
    own: RoundedRow
    rival: RoundedRow


@dataclass(frozen=True, slots=True)
class UnprovenCase:
    """What the circuit takes, and the proof without its points."""

    witness: Mapping[str, Any]
    proof: ImprintProof


def find_weighed(text: AccusedText, tensor: RawTensor) -> WeighedToken:
    """The last token of an answer that is beaten beyond what rounding took, too; raises NothingToDo where none is."""
    found: list[WeighedToken] = []

    def holds(text: AccusedText, tensor: RawTensor, seeming: Beaten) -> bool:
        try:
            weighed = _weighed(text, tensor, seeming)
        except InvalidNumbers:
            return False
        if weighed is not None:
            found.append(weighed)
        return weighed is not None

    if find_beaten(text, tensor, holds) is None:
        raise NothingToDo("No token of this answer loses by more than machines and rounding take", None, OTHERWISE)
    return found[-1]


def _weighed(text: AccusedText, tensor: RawTensor, seeming: Beaten) -> WeighedToken | None:
    pair = text.tokens[seeming.place], seeming.rival
    state = round_row(text.states[seeming.place], RowKind.STATE)
    own, rival = (_weights(text, tensor, token) for token in pair)
    position, request = len(text.request.prompt_tokens) - 1 + seeming.place, text.request
    lead = noise_lead(text.seed, position, pair, request.temperature_millionths, cut=not request.keeps_all)
    beaten = weigh(state, own, rival).beaten(lead, rounded=text.dtype is not Dtype.FLOAT32)
    return WeighedToken(seeming.place, pair, lead, state, own, rival) if beaten else None


def _weights(text: AccusedText, tensor: RawTensor, token: int) -> RoundedRow:
    return round_row(weight_numbers(row_of(tensor, token), tensor, text.dtype), RowKind.WEIGHTS)


def build_case(
    text: AccusedText, signed: Signed[Imprints], weighed: WeighedToken, head: HeadTree, place: tuple[Address, Address]
) -> UnprovenCase:
    """The case of a beaten token; ``place``: the contract, and who is paid.

    Raises NothingToDo where the node signed other imprints than its rows have, or the class names another head.
    """
    evidence, imprints = text.evidence, answer_imprints(text)
    result = typed_data.struct_hash(text.signed.message)
    signed.require(evidence.domain, typed_data.recover(text.signed.message, evidence.domain, text.signed.signature))
    if signed.message != Imprints(result, imprints_root(imprints)):
        what = "The node signed other imprints than its rows have"
        raise NothingToDo(what, None, "Show the row itself, which it signed, too: leave --imprints out.")
    if imprints_of(text.definition.name) != head.root:
        raise NothingToDo("The class names imprints of another head", text.definition.name, "Load its model.")
    weights = weigh(weighed.state, weighed.own, weighed.rival)
    terms = terms_of(weighed.pair, weighed.lead, rounded=text.dtype is not Dtype.FLOAT32)
    contract, recipient = place
    context = context_of(evidence.chain_id, contract, result, recipient)
    witness = {
        "state": str(weighed.state.imprint()),
        "head": str(head.root),
        "terms": str(terms),
        "context": str(context),
        **_row_of("state", weighed.state),
        **_row_of("own", weighed.own),
        **_row_of("rival", weighed.rival),
        "ownSiblings": [str(one) for one in head.path(weighed.pair[0])],
        "rivalSiblings": [str(one) for one in head.path(weighed.pair[1])],
        "ownLogitNegative": int(weights.own < 0),
        "rivalLogitNegative": int(weights.rival < 0),
    }
    return UnprovenCase(witness, _proof(text, signed, weighed, imprints))


def _row_of(name: str, row: RoundedRow) -> dict[str, Any]:
    magnitudes: list[int] = row.magnitudes.tolist()
    negative: list[int] = row.negative.tolist()
    return {f"{name}Magnitude": magnitudes, f"{name}Negative": negative, f"{name}Scale": row.scale}


def _proof(text: AccusedText, signed: Signed[Imprints], weighed: WeighedToken, imprints: Sequence[int]) -> ImprintProof:
    evidence, index = text.evidence, weighed.place
    assert evidence.salt is not None
    drawn = NO_PROOF
    if text.request.temperature_millionths:
        drawn = proof_of(text.vrf_key, messages.infer_alpha(evidence.order_id), evidence.infer_proof)
    token, blind = weighed.pair[0], token_blind(evidence.salt, index)
    return ImprintProof(
        # The node's signature over the result names the order: the tab key's is not looked at.
        order=replace(evidence.signed_order, signature=b""),
        execution_class=text.definition,
        model=text.descriptor,
        mark=mark_of(text.definition.name),
        result=text.signed.message,
        request=ShownRequest(*request_terms(text.request, evidence.salt)),
        draw=drawn,
        token=ShownToken(index, token, blind, token_path(evidence.salt, text.tokens, index)),
        rival=weighed.pair[1],
        imprints=signed.message.root,
        signature=signed.signature,
        imprint=imprints[index],
        siblings=imprints_path(imprints, index),
        points=(),
    )


# ------------------------------------------------------------------------------------------------------------ snarkjs


async def prove(case: UnprovenCase, key: ProvingKey, snarkjs: Path, seconds: float = SECONDS) -> ImprintProof:
    """The proof of a case. Raises ProofFailed where snarkjs is missing, too slow, or refuses the witness."""
    with tempfile.TemporaryDirectory() as made:
        entered, points, public = (Path(made) / name for name in ("input.json", "proof.json", "public.json"))
        entered.write_text(json.dumps(case.witness), "utf-8")
        program, proving = key.folder / "beaten.wasm", key.folder / "proving.zkey"
        command = (str(snarkjs), "groth16", "fullprove", *map(str, (entered, program, proving, points, public)))
        began = time.monotonic()
        await _run(command, seconds)
        log.info("proven in %.1f s", time.monotonic() - began)
        shown = json.loads(public.read_text("utf-8"))
        expected = [case.witness[name] for name in ("state", "head", "terms", "context")]
        if shown != expected:
            raise ProofFailed("the proof is of other inputs", shown, "Use the circuit of the deployment's ceremony.")
        found = json.loads(points.read_text("utf-8"))
    words = (*found["pi_a"][:2], *second_group(found["pi_b"]), *found["pi_c"][:2])
    return replace(case.proof, points=tuple(int(one) for one in words))


async def _run(command: Sequence[str], seconds: float) -> None:
    """Wait for a program, and say that it still runs; it ends with this process' wish for it."""
    try:
        # Its workers end with their group.
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, start_new_session=True
        )
    except OSError as error:
        remedy = "Install it: `npm install --global snarkjs@0.7.6`, or name it by --snarkjs."
        raise ProofFailed(f"snarkjs cannot be started: {error}", command[0], remedy) from error
    telling = asyncio.create_task(_tell())
    try:
        async with asyncio.timeout(seconds):
            output, _ = await process.communicate()
    except TimeoutError as error:
        raise ProofFailed(f"no proof after {seconds:.0f} s", command[0], "Use a faster machine.") from error
    finally:
        telling.cancel()
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode:
        said = output.decode("utf-8", "replace").strip()[-400:]
        raise ProofFailed(f"snarkjs made no proof: {said}", process.returncode, "Use the key of the deployment.")


async def _tell() -> None:
    for step in count(1):
        await asyncio.sleep(TELLING_SECONDS)
        log.info("proving: %.0f s so far", step * TELLING_SECONDS)
