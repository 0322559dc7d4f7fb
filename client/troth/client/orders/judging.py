"""What a client brings to court: a rejection by its verifiers, or a doubt of its own, with all that it holds."""

from __future__ import annotations

from troth.client.errors import AnswerUnavailable
from troth.client.orders.building import secrets_of
from troth.client.orders.case_files import case_file
from troth.client.orders.checking import parts_of
from troth.client.orders.evidence import served_of
from troth.client.orders.journal import OrderRecord
from troth.client.orders.seams import OrderEvidence
from troth.client.orders.session import PayerSession
from troth.client.tabs.keys import master_of
from troth.protocol.market import checks, life, lottery
from troth.protocol.market.errors import InvalidCheck
from troth.protocol.market.proceedings import CaseKind
from troth.protocol.market.signed import Opinion
from troth.protocol.types import Hash32


def evidence_of(session: PayerSession, entry: OrderRecord, *, doubt: bool = False) -> OrderEvidence:
    """Everything about an order for the court; AnswerUnavailable where its results or draw are not here."""
    served = served_of(entry)
    if served is None:
        what = "There are no results of this order to go to court with"
        raise AnswerUnavailable(what, entry.name, "`troth client summon` asks for results that were not sent.")
    key = session.keyring.key(served.submission.tab.key)
    secrets = secrets_of(session, served.order, master_of(key))
    words = None if doubt else served.words
    opinions = [] if words is None else _opinions(session, entry)
    rejected = tuple(segment for segment, said in enumerate(opinions) if said is Opinion.REJECT)
    drawn = words is not None and lottery.is_drawn(served.order, secrets.draw, served.draw.beta)
    kind = CaseKind.REJECTION if rejected else CaseKind.ACCEPTANCE if drawn else CaseKind.DOUBT
    file = case_file(entry, session.domain, key)
    segments = rejected or tuple(range(len(served.given)))
    return OrderEvidence(kind, segments, file, entry.tokens)


def _opinions(session: PayerSession, entry: OrderRecord) -> list[Opinion]:
    """What the openings bear out of each segment's verdicts."""
    served = served_of(entry)
    assert served is not None
    words = served.words
    assert words is not None
    key = session.keyring.key(served.submission.tab.key)
    secrets, view = secrets_of(session, served.order, master_of(key)), session.view(served.order, served.submission.tab)
    silent = {segment: one.silent for segment, one in enumerate(words.segments) if one.silent}
    drawn = checks.verifiers(
        served.order,
        served.given,
        secrets.draw,
        served.draw.beta,
        nodes=served.admitted.nodes,
        view=view,
        silent=silent,
    )
    said = []
    parts = parts_of(served, words, served.openings, key, session.domain)
    for result, part, seats in zip(served.given, parts, drawn, strict=True):
        try:
            said.append(
                life.verify_check(served.order, result, part, drawn=seats, second_secret=secrets.tiles, view=view)
            )
        except InvalidCheck:
            said.append(Opinion.CANNOT_TELL)
    return said


async def go_to_court(session: PayerSession, entry: OrderRecord, *, doubt: bool = False) -> str:
    """Hand the evidence to the session's CaseOpener; its line."""
    if session.opener is None:
        return f"`{case_command(entry.identifier)}` brings it to the court"
    return await session.opener.open(evidence_of(session, entry, doubt=doubt))


def case_command(order: Hash32, *, segment: int | None = None, bond: str = "AMOUNT") -> str:
    """The command that brings an order's answer to the court."""
    which = "" if segment is None else f" --segment {segment}"
    return f"troth client case 0x{order.hex()[:10]} --open{which} --most-bond {bond}"
