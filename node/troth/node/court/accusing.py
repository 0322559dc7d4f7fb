"""Accusing: a token of an answer that another one beats, found and shown with the model's own weights.

Whoever holds a node's rows, the request and the answer can look: logits are summed here in float64, and what seems to
lose by more than honest machines may differ by is weighed in exact integers, as the contract does. A proof that holds
here holds there, against any majority of verifiers and reviewers, without a bond.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from troth.cases.calls import NO_PROOF, proof_of
from troth.cases.convicting import Proof, by_arithmetic
from troth.cases.errors import NothingToDo
from troth.cases.evidence import Evidence
from troth.node.court.provable import behind_tokens
from troth.node.engine.head import find_head, head_numbers, slack_of, weight_numbers
from troth.node.models.folder import ModelFolder
from troth.node.models.roots.weight_hashing import row_leaves
from troth.node.models.roots.weights_root import settings_hash, tensor_roots
from troth.node.models.tensor_files import RawTensor, pieces, raw_tensors, read_rows
from troth.protocol import typed_data, vrf
from troth.protocol.exact_numbers import STATE_LIMIT, exact_logits, unit_bits
from troth.protocol.hashing import keccak256
from troth.protocol.market import messages, token_proofs
from troth.protocol.market.heads import head_of
from troth.protocol.market.messages import Signed
from troth.protocol.market.rows import RowHashes
from troth.protocol.market.signed import Result
from troth.protocol.market.token_proofs import (
    HeadMatrix,
    ShownRequest,
    ShownRow,
    ShownToken,
    ShownWeights,
    TokenProof,
    lead_of,
    noise_lead,
    state_format,
    weight_format,
)
from troth.protocol.market.types import ExecutionClass
from troth.protocol.request import Request, from_canonical_bytes, request_terms, token_blind, token_path
from troth.protocol.tensors import Dtype, row_size, widen
from troth.protocol.tokens import noise, noise_seed
from troth.protocol.types import Address, Hash32, ModelDescriptor
from troth.protocol.weight_rows import tree_path

BATCH = 32
"""Positions whose logits are held at a time."""
MOST_RIVALS = 4
"""Rivals of one position that are weighed exactly, the furthest ahead first."""
OTHERWISE = "Bring the answer to the court: `troth case open`."


class Beaten(NamedTuple):
    """A token of an answer, by its place, and a rival that seems to beat it; ``lead`` beyond the slack, in logits."""

    place: int
    rival: int
    lead: float


@dataclass(frozen=True)
class AccusedText:
    """An answer with all that a proof of it opens; ``states`` are the rows of its last segment as they travelled."""

    evidence: Evidence
    definition: ExecutionClass
    descriptor: ModelDescriptor
    vrf_key: tuple[int, int]
    rows: bytes

    @cached_property
    def signed(self) -> Signed[Result]:
        """The result of the last segment."""
        return self.evidence.results[-1]

    @cached_property
    def request(self) -> Request:
        """What was ordered."""
        assert self.evidence.request is not None
        return from_canonical_bytes(self.evidence.request)

    @cached_property
    def tokens(self) -> tuple[int, ...]:
        """The answer."""
        words = np.frombuffer(self.evidence.answer or b"", ">u4")
        return tuple(int(word) for word in words)

    @property
    def dtype(self) -> Dtype:
        """Words of the rows."""
        return Dtype(self.definition.dtype)

    @property
    def width(self) -> int:
        """Bytes of a row."""
        return row_size(self.descriptor.hidden_size, self.dtype)

    @property
    def bound(self) -> tuple[int, ...] | None:
        """The tokens that the rows bind, where the first segment is the last one, too."""
        return (*self.request.prompt_tokens, *self.tokens[:-1]) if len(self.evidence.results) == 1 else None

    @cached_property
    def states(self) -> NDArray[np.float32]:
        """The rows that chose the answer's tokens, widened."""
        data = np.frombuffer(self.rows, np.dtype(self.dtype.storage).newbyteorder("<"))
        whole = data.reshape(-1, self.descriptor.hidden_size)
        return widen(np.ascontiguousarray(whole[len(self.request.prompt_tokens) - 1 :]), self.dtype)

    @cached_property
    def seed(self) -> Hash32:
        """Seed of the public noise."""
        beta = Hash32(vrf.verify(self.vrf_key, messages.infer_alpha(self.evidence.order_id), self.evidence.infer_proof))
        return noise_seed(self.evidence.order_id, beta)

    def require(self) -> None:
        """Raise NothingToDo unless the evidence is whole, and of a kind that proofs read."""
        evidence = self.evidence
        parts = (evidence.request, evidence.answer, evidence.salt, evidence.head_salt)
        if not evidence.results or any(part is None for part in parts):
            what = "The evidence lacks the request, the answer, a salt or the results"
            raise NothingToDo(what, None, "Ask its client, scheduler or verifiers for all of them.")
        if not head_of(self.definition.name):
            raise NothingToDo("The class names no head, so that no token is weighed", self.definition.name, OTHERWISE)
        if self.request.transforms.any:
            raise NothingToDo("The request transforms logits, which no proof weighs", None, OTHERWISE)
        rows = len(self.request.prompt_tokens) + len(self.tokens) - 1
        if len(self.rows) != rows * self.width or len(self.tokens) != self.signed.message.written:
            raise NothingToDo("These are not the rows of this answer", len(self.rows), "Ask for the rows it signed.")


def accuse(text: AccusedText, folder: ModelFolder) -> Proof:
    """The proof that convicts whoever wrote this text; raises NothingToDo where no token of it is beaten."""
    text.require()
    tensor = find_head(folder, head_of(text.definition.name))
    if tensor.rows != tensor.shape[0]:
        raise NothingToDo("The head's rows are too short to be opened one by one", tensor.row_bytes, OTHERWISE)
    found = _beaten(text, tensor)
    if found is None:
        what = "No token of this answer loses by more than honest machines differ"
        raise NothingToDo(what, text.definition.name, behind_tokens(text.definition))
    proof = _proof(text, folder, tensor, *found)
    token_proofs.judge(proof, text.evidence.domain, text.vrf_key)
    convict = typed_data.recover(text.signed.message, text.evidence.domain, text.signed.signature)
    return by_arithmetic(proof, Address(convict), text.evidence.order_id)


# -------------------------------------------------------------------------------------------------------------- finding


def _beaten(text: AccusedText, tensor: RawTensor) -> tuple[int, int] | None:
    """Place and rival of the last token that is beaten: the fewer rows behind it, the cheaper is the proof."""
    sizes = np.ascontiguousarray(text.states).view(np.uint32) & 0x7FFFFFFF
    broken = np.flatnonzero((sizes >= STATE_LIMIT).any(axis=1))
    if len(broken):
        index = int(broken[-1])
        return index, (text.tokens[index] + 1) % text.descriptor.vocabulary
    return find_beaten(text, tensor, _holds)


def find_beaten(
    text: AccusedText, tensor: RawTensor, holds: Callable[[AccusedText, RawTensor, Beaten], bool]
) -> tuple[int, int] | None:
    """Place and rival of the last token that is beaten by a rule in exact numbers; None where none is."""
    ends = range(len(text.tokens), 0, -BATCH)
    for end in ends:
        first = max(end - BATCH, 0)
        for beaten in sorted(_seeming(text, tensor, first, end), key=lambda one: (-one.place, -one.lead)):
            if holds(text, tensor, beaten):
                return beaten.place, beaten.rival
    return None


def _seeming(text: AccusedText, tensor: RawTensor, first: int, end: int) -> Iterator[Beaten]:
    """Tokens of [first, end) with rivals that are ahead by more than the slack, in float64."""
    states, tokens = text.states[first:end].astype(np.float64), np.array(text.tokens[first:end])
    own = np.stack([_weights(tensor, int(token), text.dtype) for token in tokens]).astype(np.float64)
    logit, size = np.einsum("td,td->t", states, own), np.einsum("td,td->t", np.abs(states), np.abs(own))
    terms, dtype = text.descriptor.hidden_size, text.definition.dtype
    slack = slack_of(logit, size, terms, dtype)
    vocabulary = text.descriptor.vocabulary
    likelier = np.full((len(tokens), vocabulary), -np.inf)
    for at, weights in head_numbers(tensor, dtype):
        wide = weights[: max(vocabulary - at, 0)].astype(np.float64)
        exact, sizes = states @ wide.T, np.abs(states) @ np.abs(wide).T
        margin = slack[:, None] + slack_of(exact, sizes, terms, dtype)
        likelier[:, at : at + len(wide)] = exact - logit[:, None] - margin
    for row in range(len(tokens)):
        ahead = _ahead(text, likelier[row], first + row, int(tokens[row]))
        for rival in np.argsort(-ahead)[:MOST_RIVALS]:
            if ahead[rival] > 0:
                yield Beaten(first + row, int(rival), float(ahead[rival]))


def _ahead(text: AccusedText, likelier: NDArray[np.float64], index: int, token: int) -> NDArray[np.float64]:
    """How far rivals are ahead beyond the slack; where tokens are cut, of what both conditions ask the smaller."""
    temperature = text.request.temperature_millionths / 1_000_000
    if not temperature:
        return likelier
    gumbel = noise(text.seed, len(text.request.prompt_tokens) - 1 + index, len(likelier))
    ahead: NDArray[np.float64] = likelier + temperature * (gumbel - gumbel[token])
    return ahead if text.request.keeps_all else np.minimum(ahead, likelier)


def _holds(text: AccusedText, tensor: RawTensor, beaten: Beaten) -> bool:
    """Whether the contract will say the same."""
    token, rounded = text.tokens[beaten.place], text.dtype is not Dtype.FLOAT32
    position = len(text.request.prompt_tokens) - 1 + beaten.place
    state = text.rows[position * text.width : (position + 1) * text.width]
    weights = (row_of(tensor, token), row_of(tensor, beaten.rival))
    kinds = state_format(text.definition), weight_format(tensor.dtype)
    unit = unit_bits(state, kinds[0], weights, kinds[1])
    found = exact_logits(state, kinds[0], weights, kinds[1], rounded=rounded, unit=unit)
    likelier, slack = lead_of(found, unit, rounded=rounded)
    temperature = text.request.temperature_millionths
    if not temperature:
        return likelier > slack
    ahead = likelier + noise_lead(text.seed, position, (token, beaten.rival), temperature, unit)
    return ahead > slack and (text.request.keeps_all or likelier > slack)


def row_of(tensor: RawTensor, place: int) -> bytes:
    """A row of the head as its file has it."""
    return bytes(read_rows(tensor, place, place + 1))


def _weights(tensor: RawTensor, place: int, dtype: int) -> NDArray[np.float32]:
    return weight_numbers(row_of(tensor, place), tensor, dtype)


# -------------------------------------------------------------------------------------------------------------- showing


def _proof(text: AccusedText, folder: ModelFolder, tensor: RawTensor, index: int, rival: int) -> TokenProof:
    evidence, token = text.evidence, text.tokens[index]
    assert evidence.salt is not None
    head, blind = request_terms(text.request, evidence.salt)
    drawn = NO_PROOF
    if text.request.temperature_millionths:
        drawn = proof_of(text.vrf_key, messages.infer_alpha(evidence.order_id), evidence.infer_proof)
    leaves = [leaf for first, end in pieces(tensor) for leaf in row_leaves(tensor, first, end)]
    state, rows = _state(text, index), (row_of(tensor, token), row_of(tensor, rival))
    return TokenProof(
        # The node's signature over the result names the order: the tab key's is not looked at.
        order=replace(evidence.signed_order, signature=b""),
        execution_class=text.definition,
        model=text.descriptor,
        result=text.signed.message,
        signature=text.signed.signature,
        request=ShownRequest(head, blind),
        draw=drawn,
        token=ShownToken(
            index, token, token_blind(evidence.salt, index), token_path(evidence.salt, text.tokens, index)
        ),
        state=state,
        rival=rival,
        head=_matrix(folder, tensor),
        claimed=ShownWeights(rows[0], tree_path(leaves, token)),
        better=ShownWeights(rows[1], tree_path(leaves, rival)),
        unit_bits=unit_bits(state.row, state_format(text.definition), rows, weight_format(tensor.dtype)),
    )


def _state(text: AccusedText, index: int) -> ShownRow:
    position, width = len(text.request.prompt_tokens) - 1 + index, text.width
    before = RowHashes(text.evidence.order_id, text.signed.message.segment)
    bound = text.bound
    if position:
        before, _ = before.extend(text.rows[: position * width], width, None if bound is None else bound[:position])
    own = [text.rows[at : at + width] for at in range(0, len(text.rows), width)]
    hashes = [
        Hash32(keccak256((b"" if bound is None else bound[at].to_bytes(4, "big")) + own[at]))
        for at in range(position + 1, len(own))
    ]
    assert text.evidence.head_salt is not None
    read = 0 if bound is None else bound[position]
    return ShownRow(text.evidence.head_salt, before.link, read, own[position], tuple(hashes))


def _matrix(folder: ModelFolder, tensor: RawTensor) -> HeadMatrix:
    """The head's tensor under the weights root: every byte of the model is hashed once more for it."""
    roots = tensor_roots(raw_tensors(folder.path))
    names = sorted(roots)
    place = names.index(tensor.name)
    return HeadMatrix(
        name=tensor.name,
        dtype=tensor.dtype,
        rows=tensor.rows,
        quantisation=Hash32(settings_hash(folder.quantisation)),
        tensors=len(names),
        place=place,
        siblings=tree_path([roots[name] for name in names], place),
    )
