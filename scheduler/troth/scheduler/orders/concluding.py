"""After the last token: each node signs its result, and it must say what the scheduler saw itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from troth.protocol.errors import ProtocolError
from troth.protocol.market import canonical, checks
from troth.protocol.market.checks import Answer
from troth.protocol.market.messages import Signed
from troth.protocol.market.types import Result
from troth.protocol.request import output_hash
from troth.protocol.tensors import tokens_to_bytes
from troth.protocol.types import ZERO_HASH
from troth.protocol.wire import Frame
from troth.protocol.wire_market import Concluded
from troth.scheduler.orders.desk import Desk, Work
from troth.scheduler.orders.hop import Hop

_LIMIT = 1 << 13


async def conclude(
    desk: Desk, work: Work, hops: Sequence[Hop], tokens: Sequence[int], timeout: float
) -> tuple[Signed[Result], ...]:
    """All results, which meet and stand for these tokens; raises NodeFailed for the node that signs something else."""
    asked = [conclude_one(desk, work, hops, segment, tokens, len(tokens), timeout) for segment in range(len(hops))]
    results = tuple(await asyncio.gather(*asked))
    view = desk.view(work.story.order, work.story.admitted.tab)
    given = checks.require_results(work.story.order, results, work.nodes, view)
    prompt = len(work.request.prompt_tokens)
    checks.require_answer(given, Answer(prompt, len(tokens), output_hash(work.salt, tokens)))
    return results


async def conclude_one(
    desk: Desk,
    work: Work,
    hops: Sequence[Hop],
    segment: int,
    tokens: Sequence[int],
    written: int,
    timeout: float,
) -> Signed[Result]:
    """One node's result over the rows that it has signed.

    Every node is told how many tokens were ``written``, which its result counts; only the last one is shown them.
    """
    hop = hops[segment]
    shown = tokens_to_bytes(tokens) if segment == len(hops) - 1 else b""
    frame = await hop.conclude(hop.chain.position, written, shown, timeout)
    try:
        return _checked(desk, work, hops, segment, tokens, written, frame)
    except ProtocolError as error:
        raise hop.failed(error) from error


def _checked(
    desk: Desk,
    work: Work,
    hops: Sequence[Hop],
    segment: int,
    tokens: Sequence[int],
    written: int,
    frame: Frame,
) -> Signed[Result]:
    hop = hops[segment]
    if not isinstance(frame.header, Concluded):
        raise hop.failed(f"an answer to another question: {type(frame.header).__name__}")
    signed = canonical.decode(Signed[Result], frame.payload, _LIMIT)
    result = signed.require(desk.operator.domain, hop.node)
    salt, order = work.story.admitted.head_salt, work.order_id
    head = work.story.order.request_hash if segment == 0 else checks.head(order, salt, hops[segment - 1].chain.link)
    last = segment == len(hops) - 1
    expected = replace(
        result,
        order=order,
        segment=segment,
        input_head=head,
        output_head=checks.head(order, salt, hop.chain.link),
        written=written,
        output_hash=output_hash(work.salt, tokens) if last else ZERO_HASH,
    )
    if result != expected or result.prompt + result.cached != len(work.request.prompt_tokens):
        raise hop.failed("a result that is not over the rows and tokens that it gave")
    return signed
