"""What a reviewer works from, checked against what was signed before the case was opened; who sent it does not matter.

The request's salted hash is in the order, the answer's in the last result; rows lead, salted, to the heads that
results name; root and salt of the judged trace lead to its commitment. What does not fit counts as not delivered.
"""

from __future__ import annotations

from dataclasses import dataclass

from troth.cases.errors import EvidenceRefused
from troth.cases.evidence import Evidence
from troth.cases.standing import signer_of
from troth.protocol import typed_data, vrf
from troth.protocol.errors import InvalidProof, InvalidRequest, InvalidRows
from troth.protocol.market import messages, prices
from troth.protocol.market.checks import head
from troth.protocol.market.proceedings import CaseState
from troth.protocol.market.rows import RowHashes
from troth.protocol.market.signed import Order, Result
from troth.protocol.market.types import Rules
from troth.protocol.request import Request, from_canonical_bytes, output_hash, request_hash
from troth.protocol.tensors import Dtype, row_size
from troth.protocol.tokens import noise_seed
from troth.protocol.types import Hash32

TOKEN_BYTES = 4
SALT_BYTES = 32
OPENING_BYTES = 64
"""Root and salt of a trace."""


@dataclass(frozen=True, slots=True)
class Papers:
    """The order and the results of a case, as the chain names them; ``evidence`` is where they came from."""

    evidence: Evidence
    order: Order
    results: tuple[Result, ...]
    segment: int

    @property
    def result(self) -> Result:
        """The judged one."""
        return self.results[self.segment]


@dataclass(frozen=True, slots=True)
class OrderText:
    """Prompt and answer of an order, and the seed of its sampling."""

    request: Request
    tokens: tuple[int, ...]
    seed: Hash32

    @property
    def inputs(self) -> tuple[int, ...]:
        """Tokens of all rows: the last one of the answer has none."""
        return (*self.request.prompt_tokens, *self.tokens[:-1])


def papers_of(evidence: Evidence, state: CaseState) -> Papers:
    """Order and results, once they are those of the case; EvidenceRefused."""
    signed = evidence.signed_order
    results = tuple(one.message for one in evidence.results)
    if evidence.order_id != state.order:
        raise EvidenceRefused("The evidence is of another order", evidence.order_id.hex(), "Ask another holder.")
    if len(results) != messages.segment_count(state.ends) or not evidence.draws:
        raise EvidenceRefused("The evidence lacks results or draw", len(results), "Ask another holder.")
    draw = evidence.draws[0]
    drawn = draw.message.order == state.order and draw.message.results == messages.results_hash(results)
    if not drawn or signer_of(draw, evidence) != state.scheduler:
        raise EvidenceRefused("The scheduler did not draw over these results", len(results), "Ask another holder.")
    if typed_data.struct_hash(results[state.segment]) != state.result:
        raise EvidenceRefused("The case is over another result", state.segment, "Ask another holder.")
    return Papers(evidence, signed.order, results, state.segment)


def text_of(papers: Papers, vrf_key: tuple[int, int]) -> OrderText | None:
    """Prompt and answer; None where the opener has not delivered them, or others than were signed."""
    evidence, salt = papers.evidence, papers.evidence.salt
    if evidence.request is None or evidence.answer is None or salt is None or len(evidence.answer) % TOKEN_BYTES:
        return None
    words = range(0, len(evidence.answer), TOKEN_BYTES)
    tokens = tuple(int.from_bytes(evidence.answer[start : start + TOKEN_BYTES]) for start in words)
    try:
        request = from_canonical_bytes(evidence.request)
        fits = request_hash(request, salt) == papers.order.request_hash
        same = output_hash(salt, tokens) == papers.results[-1].output_hash
        beta = vrf.verify(vrf_key, messages.infer_alpha(evidence.order_id), evidence.infer_proof)
    except (InvalidRequest, InvalidProof):
        return None
    if not fits or not same or not tokens or request.execution_class != papers.order.execution_class:
        return None
    return OrderText(request, tokens, noise_seed(evidence.order_id, Hash32(beta)))


def counts_truly(papers: Papers, text: OrderText) -> bool:
    """Whether the judged result counts the positions that there are; another count is a false result."""
    result = papers.result
    return (result.prompt + result.cached, result.written) == (len(text.request.prompt_tokens), len(text.tokens))


def rows_size(result: Result, rules: Rules) -> int:
    """Bytes of all rows of a result, with the salt of the heads before them."""
    count = max(prices.positions(result) - 1, 1)
    return SALT_BYTES + count * row_size(rules.hidden_size, Dtype(rules.dtype))


def rows_in(papers: Papers, segment: int, data: bytes, text: OrderText, rules: Rules) -> bytes | None:
    """The rows of a segment without the salt before them; None where they are not those that its result names."""
    result, size = papers.results[segment], row_size(rules.hidden_size, Dtype(rules.dtype))
    rows = data[SALT_BYTES:]
    tokens = text.inputs if segment == 0 else None
    if len(data) != rows_size(result, rules) or (tokens is not None and len(tokens) * size != len(rows)):
        return None
    try:
        chain, _ = RowHashes(result.order, segment).extend(rows, size, tokens)
    except InvalidRows:
        return None
    return rows if head(result.order, Hash32(data[:SALT_BYTES]), chain.link) == result.output_head else None


def opening_in(state: CaseState, data: bytes) -> tuple[Hash32, Hash32] | None:
    """Root and salt of the judged trace; None where they are not what its node committed to."""
    if len(data) != OPENING_BYTES:
        return None
    root, salt = Hash32(data[:32]), Hash32(data[32:])
    return (root, salt) if messages.trace_commitment(root, salt) == state.trace_commitment else None
