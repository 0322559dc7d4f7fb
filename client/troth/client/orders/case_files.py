"""What a client has written down of an order, as the file with which anybody goes to court."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from troth.cases.evidence import VERSION, Evidence, OpenedTiles
from troth.chain.keystore import Key
from troth.client.errors import AnswerUnavailable
from troth.client.orders.checking import parts_of
from troth.client.orders.evidence import ServedOrder, served_of
from troth.client.orders.journal import OrderRecord
from troth.protocol.errors import ProtocolError
from troth.protocol.market.bodies import Admitted, Lottery, Results, read_part
from troth.protocol.request import tokens_to_words
from troth.protocol.typed_data import Domain
from troth.protocol.types import Hash32

Line = Admitted | Results | Lottery
_LINES: dict[str, type[Line]] = {"admitted": Admitted, "results": Results, "draw": Lottery}


def case_file(entry: OrderRecord, domain: Domain, key: Key | None = None) -> Evidence:
    """Everything about an order; raises AnswerUnavailable where its scheduler signed nothing.

    ``key``: the tab key, to which the openings of its check are sealed; without it they are left out. A secret is in
    it only where it may have been shown already.
    """
    submission, lie = entry.submission, _lie(entry)
    admitted = entry.read("admitted", Admitted) or (lie if isinstance(lie, Admitted) else None)
    if submission is None or admitted is None:
        what = "Nothing that its scheduler signed is here"
        raise AnswerUnavailable(what, entry.name, "`troth client receipts` shows how far it came.")
    made = Evidence(
        version=VERSION,
        chain_id=domain.chain_id,
        bank=domain.contract,
        tab=submission.tab,
        order=submission.order,
        admissions=(admitted.admission,),
        nodes=admitted.nodes,
        infer_proof=admitted.infer_proof,
        secret=_hash_of(entry, "secret"),
        second_secret=_hash_of(entry, "second"),
        request=submission.request,
        salt=submission.salt,
    )
    made = _with_lie(_with_results(made, entry), lie)
    served = served_of(entry)
    return made if served is None else _with_check(made, served, domain, key)


def _with_results(made: Evidence, entry: OrderRecord) -> Evidence:
    results, lottery = entry.read("results", Results), entry.read("lottery", Lottery)
    if results is not None:
        made = replace(made, results=results.results, answer=tokens_to_words(entry.tokens))
    return made if lottery is None else replace(made, draws=(lottery.draw,), draw_proof=lottery.proof)


def _with_lie(made: Evidence, lie: Line | None) -> Evidence:
    """With the line that ended an order, beside what was stored before it: two words of one party convict it."""
    match lie:
        case Admitted() if lie.admission not in made.admissions:
            return replace(made, admissions=(*made.admissions, lie.admission))
        case Results() if made.results:
            return replace(made, other_results=lie.results)
        case Results():
            return replace(made, results=lie.results)
        case Lottery():
            return replace(made, draws=(*made.draws, lie.draw), draw_proof=made.draw_proof or lie.proof)
        case _:
            return made


def _lie(entry: OrderRecord) -> Line | None:
    """The line by which a scheduler contradicted itself, where it is one that was signed."""
    try:
        line = json.loads(entry.evidence.get("lie", b"{}"))
        return read_part(_LINES[line["type"]], line)
    except (ValueError, KeyError, TypeError, ProtocolError):
        # A line that was no message of the protocol, or too long to be kept: nobody can be convicted with it.
        return None


def _hash_of(entry: OrderRecord, name: str) -> Hash32 | None:
    body = entry.evidence.get(name)
    return None if body is None else Hash32(body)


def _with_check(made: Evidence, served: ServedOrder, domain: Domain, key: Key | None) -> Evidence:
    words = served.words
    if words is None:
        return made
    return replace(
        made,
        commitments=tuple(one for part in words.segments for one in part.commitments),
        verdicts=tuple(one for part in words.segments for one in part.verdicts),
        shown=() if key is None else tuple(_shown(served, domain, key)),
    )


def _shown(served: ServedOrder, domain: Domain, key: Key) -> Iterator[OpenedTiles]:
    """What node and verifiers opened to this client."""
    words = served.words
    assert words is not None
    for segment, part in enumerate(parts_of(served, words, served.openings, key, domain)):
        if part.node is not None:
            yield OpenedTiles(segment, served.admitted.nodes[segment], part.node)
        for party, opened in part.opened.items():
            yield OpenedTiles(segment, party, opened)
