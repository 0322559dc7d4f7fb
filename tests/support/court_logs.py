"""What the scheduler of a ``court_stage`` logs: lines of orders, and entries posted on chain."""

from __future__ import annotations

import msgspec
from support.court_stage import CourtStage

from troth.audit.checks import logs
from troth.cases.evidence import Evidence
from troth.cases.standing import signer_of
from troth.protocol.market import log_data
from troth.protocol.market.log_data import LogLine, written
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import LogCounts


def line_of(held: Evidence, *, checked: bool = True) -> LogLine:
    """What an honest scheduler logs of an order."""
    assert held.order
    assert held.secret
    draw = held.draws[0].message
    results, proofs = zip(held.nodes, held.results, strict=True), (held.infer_proof, held.draw_proof)
    line = log_data.promised_line(
        held.order_id, held.order.message, results, proofs, draw, block=draw.block_number, positions=14
    )
    said = tuple(log_data.logged_verdict(str(signer_of(one, held)), one) for one in held.verdicts) if checked else ()
    return msgspec.structs.replace(line, secret=written(held.secret), verdicts=said)


async def post(court: CourtStage, number: int, lines: list[LogLine]) -> bytes:
    """The entry on chain, and its data."""
    data = log_data.encode_data(lines)
    counts = LogCounts(**{name: least for name, (least, _) in logs.count(log_data.decode_data(data)).items()})
    arguments = (number, log_data.data_root(data), counts, log_data.data_hash(data))
    await court.stage.send(court.stage.scheduler, Part.LOG, "post", *arguments)
    return data
