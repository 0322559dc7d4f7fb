"""`troth node accuse --imprints`: a wrong token is proven, and the row from which it was chosen is not shown."""

from __future__ import annotations

import asyncio
import logging
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from troth.cases.courtroom import Courtroom
from troth.chain.errors import ChainRejected
from troth.node.court.accusing import AccusedText
from troth.node.court.imprinting import build_case, find_weighed, prove
from troth.node.engine.head import find_head
from troth.node.engine.imprints import head_imprints
from troth.node.errors import ConfigError
from troth.node.models.folder import ModelFolder
from troth.protocol.bindings.structs import encode_values
from troth.protocol.errors import InvalidField
from troth.protocol.imprints import calls
from troth.protocol.imprints.keys import ProvingKey, read_key
from troth.protocol.imprints.naming import Imprints
from troth.protocol.imprints.rows import HeadTree
from troth.protocol.market import canonical
from troth.protocol.market.calls import PartCall, PartView
from troth.protocol.market.heads import head_of
from troth.protocol.market.messages import Signed
from troth.protocol.market.types import NO_ADDRESS
from troth.protocol.market.views import parameters_of
from troth.protocol.types import Address

IMPRINTS_LIMIT = 1 << 10
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HiddenProof:
    """How a proof without its row is made: what the node signed of imprints, the key, and the program."""

    imprints: Path
    key: Path
    snarkjs: str
    seconds: float


def hidden_proof(imprints: Path | None, key: Path | None, snarkjs: str, seconds: float) -> HiddenProof | None:
    """What was asked for; None: the row is shown. Raises ConfigError for one of two options alone."""
    if imprints is None and key is None:
        return None
    if imprints is None or key is None:
        remedy = "Name both, or neither to show the row."
        raise ConfigError("a proof that shows no row needs --imprints and --key", imprints or key, remedy)
    return HiddenProof(imprints.expanduser(), key.expanduser(), snarkjs, seconds)


async def accuse_hidden(
    text: AccusedText, model: ModelFolder, courtroom: Courtroom, how: HiddenProof, *, broadcast: bool
) -> dict[str, Any]:
    """Who is convicted; sent with ``broadcast``, else simulated. The account that sends is paid.

    Raises:
        NothingToDo: no token is beaten beyond what rounding took, or the node's imprints are not those of its rows.
        ConfigError: no file, another key, or a deployment without Imprints.
        InvalidKey: no key, or one of a test set-up on a real chain.
        ProofFailed: snarkjs made no proof.
    """
    prover = parameters_of((await courtroom.seen()).state).prover
    if prover == NO_ADDRESS:
        remedy = "Leave --imprints out: the row is shown then."
        raise ConfigError("this deployment's prover takes no proofs of imprints", prover, remedy)
    key = read_key(how.key, courtroom.domain.chain_id)
    await _require_key(courtroom, prover, key)
    signed, program = _signed(how.imprints), Path(shutil.which(how.snarkjs) or how.snarkjs)
    text.require()
    tensor = find_head(model, head_of(text.definition.name))
    weighed = await asyncio.to_thread(find_weighed, text, tensor)
    log.info("token %d is beaten by %d; the head's imprints are computed", *weighed.pair)
    head = HeadTree(await asyncio.to_thread(head_imprints, tensor, text.definition.dtype), key.levels)
    recipient = courtroom.account
    case = await asyncio.to_thread(build_case, text, signed, weighed, head, (prover, recipient))
    proof = await prove(case, key, program, how.seconds)
    party, _, _ = await courtroom.read(PartView(prover, calls.beaten(proof, recipient)))
    call = PartCall(prover, calls.convict(calls.evidence_of(proof, recipient)))
    told = {"convicts": party, "order": "0x" + text.evidence.order_id.hex(), "pays": recipient}
    if broadcast:
        return {**told, "sent": True, "block": (await courtroom.send(call)).block}
    simulation = await courtroom.simulate(call)
    refused = None if simulation.rejection is None else str(simulation.rejection)
    return {**told, "sent": False, "would_fail": refused, "most_wei_of_gas": str(simulation.maximum_cost)}


async def _require_key(courtroom: Courtroom, prover: Address, key: ProvingKey) -> None:
    try:
        words = await courtroom.read(PartView(prover, calls.key_of(key.checking.columns)))
    except (ChainRejected, InvalidField) as error:
        what = f"this deployment's prover takes no imprints of rows of {key.checking.columns} columns"
        raise ConfigError(what, prover, "Leave --imprints out: the row is shown then.") from error
    if words != encode_values(["uint256"] * calls.KEY_WORDS, key.checking.words):
        remedy = "Fetch the key of this deployment's ceremony."
        raise ConfigError("the deployment checks proofs under another key", key.folder, remedy)


def _signed(path: Path) -> Signed[Imprints]:
    try:
        return canonical.decode(Signed[Imprints], path.read_bytes(), IMPRINTS_LIMIT)
    except (OSError, InvalidField) as error:
        remedy = "`troth client case ORDER --write FILE --rows` writes it as FILE.imprints."
        raise ConfigError(f"this is no signed word about imprints: {error}", path, remedy) from error
