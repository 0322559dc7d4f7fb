"""What the scheduler of a ``court_stage`` logs: lines of orders, and entries posted on chain."""

from __future__ import annotations

from support.court_stage import CourtStage

from troth.audit.checks import logs
from troth.cases.evidence import Evidence
from troth.cases.standing import signer_of
from troth.protocol.market import log_data
from troth.protocol.market.log_data import LoggedResult, LoggedVerdict, LogLine, written
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import LogCounts
from troth.protocol.typed_data import struct_hash


def line_of(held: Evidence, *, checked: bool = True) -> LogLine:
    """What an honest scheduler logs of an order."""
    assert held.order
    assert held.secret
    order, draw = held.order.message, held.draws[0].message
    said = tuple(
        LoggedVerdict(
            one.message.segment,
            str(signer_of(one, held)),
            int(one.message.opinion),
            one.message.locks,
            written(one.message.commitment),
            written(one.signature),
        )
        for one in held.verdicts
    )
    seen = tuple(
        LoggedResult(node, written(struct_hash(one.message)), written(one.signature))
        for node, one in zip(held.nodes, held.results, strict=True)
    )
    return LogLine(
        order=written(held.order_id),
        execution_class=written(order.execution_class),
        ends=written(order.ends),
        reference_block=order.reference_block,
        check_rate=order.check_rate,
        draw_hash=written(order.draw_hash),
        prompt_price=str(order.prompt_price),
        cached_price=str(order.cached_price),
        written_price=str(order.written_price),
        node_share=order.node_share,
        infer_proof=written(held.infer_proof),
        results=seen,
        beta=written(draw.beta),
        draw_proof=written(held.draw_proof),
        block_bucket=draw.block_number // log_data.BLOCK_BUCKET,
        positions_bucket=log_data.bucket_of(14),
        secret=written(held.secret),
        verdicts=said if checked else (),
    )


async def post(court: CourtStage, number: int, lines: list[LogLine]) -> bytes:
    """The entry on chain, and its data."""
    data = log_data.encode_data(lines)
    counts = LogCounts(**{name: least for name, (least, _) in logs.count(log_data.decode_data(data)).items()})
    arguments = (number, log_data.data_root(data), counts, log_data.data_hash(data))
    await court.stage.send(court.stage.scheduler, Part.LOG, "post", *arguments)
    return data
