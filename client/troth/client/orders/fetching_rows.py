"""The rows of an answer, asked of its scheduler once the check is over: whoever has them can look for a wrong token.

They are believed only where they lead to the heads that their nodes signed. Of a whole model in an exact class only
hashes travelled: they prove the salt of the heads, with which any node of the model computes the rows again.
"""

from __future__ import annotations

from dataclasses import replace

from troth.cases.evidence import Evidence, SegmentRows
from troth.client.errors import AnswerUnavailable, StreamError
from troth.client.orders.calls import MarketCalls
from troth.client.orders.evidence import ServedOrder, served_of
from troth.client.orders.journal import OrderRecord
from troth.client.orders.session import PayerSession
from troth.protocol import typed_data
from troth.protocol.errors import InvalidRows, ProtocolError
from troth.protocol.imprints.naming import Imprints, imprints_of
from troth.protocol.market import canonical, checks
from troth.protocol.market.messages import Signed
from troth.protocol.market.rows import HASH_BYTES, RowHashes, hashes_in, travel_as_hashes
from troth.protocol.market.views import class_of, registered_scheduler, rules_in
from troth.protocol.request import from_canonical_bytes
from troth.protocol.tensors import Dtype, row_size
from troth.protocol.types import Hash32

IMPRINTS_LIMIT = 1 << 10


async def with_rows(session: PayerSession, entry: OrderRecord, file: Evidence) -> Evidence:
    """The evidence with the rows of every segment; where only their hashes travelled, with the salt of the heads alone.

    Raises:
        AnswerUnavailable: the answer is not here whole.
        StreamError: what the scheduler sent are not the rows that its nodes signed.
        SchedulerRefusal: its check is not over, or its rows are kept no longer.
    """
    served = served_of(entry)
    if served is None:
        what = "The order has no answer whose rows could be fetched"
        raise AnswerUnavailable(what, entry.name, "`troth client receipts` shows how far it came.")
    rules = rules_in(session.state, served.order.execution_class)
    hashed = travel_as_hashes(exact=rules.exact, segments=len(served.given))
    width = HASH_BYTES if hashed else row_size(rules.hidden_size, Dtype(rules.dtype))
    calls = await session.connect(registered_scheduler(session.state, served.submission.tab.payee))
    head_salt, kept = Hash32(bytes(32)), []
    for segment in range(len(served.given)):
        head_salt, data = await _fetched(calls, served, segment, width)
        _require_signed(served, segment, head_salt, data, None if hashed else width)
        if not hashed:
            kept.append(SegmentRows.of(segment, data))
    return replace(file, head_salt=head_salt, rows=tuple(kept))


async def fetched_imprints(session: PayerSession, entry: OrderRecord) -> Signed[Imprints] | None:
    """What the last segment's node signed of its rows' imprints; None where the class names none.

    Raises as ``with_rows``, and StreamError where it is not that node's word about this result.
    """
    served = served_of(entry)
    if served is None:
        what = "The order has no answer whose imprints could be fetched"
        raise AnswerUnavailable(what, entry.name, "`troth client receipts` shows how far it came.")
    definition, _ = class_of(session.state, served.order.execution_class)
    if imprints_of(definition.name) is None:
        return None
    calls = await session.connect(registered_scheduler(session.state, served.submission.tab.payee))
    last, salt = len(served.given) - 1, served.submission.salt
    result = served.given[last]
    piece = await calls.rows(result.order, salt, last, result.prompt + result.cached + result.written - 2)
    try:
        signed = canonical.decode(Signed[Imprints], piece.imprints, IMPRINTS_LIMIT)
        word = signed.require(session.domain, served.admitted.nodes[last])
    except ProtocolError as error:
        raise StreamError("The scheduler has no imprints of this node", entry.name, "Show the row itself.") from error
    if word.result != typed_data.struct_hash(result):
        raise StreamError("The imprints are of another result", entry.name, "Show the row itself.")
    return signed


async def _fetched(calls: MarketCalls, served: ServedOrder, segment: int, width: int) -> tuple[Hash32, bytes]:
    result, submission = served.given[segment], served.submission
    wanted, data = (result.prompt + result.cached + result.written - 1) * width, bytearray()
    while True:
        piece = await calls.rows(result.order, submission.salt, segment, len(data) // width)
        data += piece.data
        if len(data) == wanted:
            return piece.head_salt, bytes(data)
        if not piece.data or len(piece.data) % width or len(data) > wanted:
            raise _others(served, segment)


def _require_signed(served: ServedOrder, segment: int, head_salt: Hash32, data: bytes, width: int | None) -> None:
    """Raise StreamError unless the rows, of so many bytes, or their hashes where it is None, are the ones signed."""
    result = served.given[segment]
    prompt = from_canonical_bytes(served.submission.request).prompt_tokens
    tokens = None if segment else (*prompt, *served.entry.tokens[:-1])
    begun = RowHashes(result.order, segment)
    try:
        chain, _ = begun.extend_hashed(hashes_in(data)) if width is None else begun.extend(data, width, tokens)
    except InvalidRows as error:
        raise _others(served, segment) from error
    if checks.head(result.order, head_salt, chain.link) != result.output_head:
        raise _others(served, segment)


def _others(served: ServedOrder, segment: int) -> StreamError:
    what = f"The scheduler sent other rows of segment {segment} than its node signed"
    return StreamError(what, served.entry.name, "A summons, or a case, makes it show them to the court.")
