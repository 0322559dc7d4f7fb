"""What a client brings to court: a rejection by its verifiers, or a doubt of its own, with all that it holds."""

from __future__ import annotations

from troth.client.errors import AnswerUnavailable
from troth.client.orders.building import secrets_of
from troth.client.orders.checking import parts_of
from troth.client.orders.evidence import served_of
from troth.client.orders.journal import Entry
from troth.client.orders.seams import Evidence
from troth.client.orders.session import MarketSession
from troth.client.tabs.keys import master_of
from troth.protocol.market import checks, life, lottery
from troth.protocol.market.errors import InvalidCheck
from troth.protocol.market.types import CaseKind, Opinion


def evidence_of(session: MarketSession, entry: Entry, *, doubt: bool = False) -> Evidence:
    """Everything about an order for the court; AnswerUnavailable where its results or draw are not here."""
    served = served_of(entry)
    if served is None:
        what = "There are no results of this order to go to court with"
        raise AnswerUnavailable(what, entry.name, "`troth client summon` asks for results that were not sent.")
    key = session.keyring.key(served.submission.tab.key)
    secrets = secrets_of(session, served.order, master_of(key))
    words = None if doubt else served.words
    parts = () if words is None else parts_of(served, words, served.openings, key, session.domain)
    opinions = [] if words is None else _opinions(session, entry)
    rejected = tuple(segment for segment, said in enumerate(opinions) if said is Opinion.REJECT)
    drawn = words is not None and lottery.is_drawn(served.order, secrets.draw, served.draw.beta)
    kind = CaseKind.REJECTION if rejected else CaseKind.ACCEPTANCE if drawn else CaseKind.DOUBT
    return Evidence(
        kind=kind,
        segments=rejected or tuple(range(len(served.given))),
        order=served.submission.order,
        tab=served.submission.tab,
        admission=served.admitted.admission,
        nodes=served.admitted.nodes,
        infer_proof=served.admitted.infer_proof,
        results=served.results.results,
        draw=served.lottery.draw,
        draw_proof=served.lottery.proof,
        secret=secrets.draw if drawn else None,
        second_secret=secrets.tiles if drawn else None,
        checks=parts,
        request=served.submission.request,
        salt=served.submission.salt,
        tokens=entry.tokens,
        bond=session.case_bond,
    )


def _opinions(session: MarketSession, entry: Entry) -> list[Opinion]:
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


async def go_to_court(session: MarketSession, entry: Entry, *, doubt: bool = False) -> str:
    """Hand the evidence to the session's CaseOpener; its line."""
    if session.opener is None:
        return f"`troth client case {entry.name[:12]} --broadcast` brings it to the court"
    return await session.opener.open(evidence_of(session, entry, doubt=doubt))
