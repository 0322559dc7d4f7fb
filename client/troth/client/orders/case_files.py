"""What a client has written down of an order, as the file with which anybody goes to court."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from troth.cases.evidence import VERSION, Evidence, Shown
from troth.chain.keystore import Key
from troth.client.errors import AnswerUnavailable
from troth.client.orders.checking import parts_of
from troth.client.orders.evidence import Served, served_of
from troth.client.orders.journal import Entry
from troth.protocol.market.bodies import Admitted
from troth.protocol.request import tokens_to_words
from troth.protocol.typed_data import Domain
from troth.protocol.types import Hash32


def case_file(entry: Entry, domain: Domain, key: Key | None = None) -> Evidence:
    """Everything about an order; raises AnswerUnavailable where its scheduler signed nothing.

    ``key``: the tab key, to which the openings of its check are sealed; without it they are left out. A secret is in
    it only where it may have been shown already.
    """
    submission, admitted = entry.submission, entry.read("admitted", Admitted)
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
        request=submission.request,
        salt=submission.salt,
    )
    served = served_of(entry)
    return made if served is None else _with_results(made, served, domain, key)


def _with_results(made: Evidence, served: Served, domain: Domain, key: Key | None) -> Evidence:
    second = served.entry.evidence.get("second")
    made = replace(
        made,
        results=served.results.results,
        draws=(served.lottery.draw,),
        draw_proof=served.lottery.proof,
        secret=served.secret,
        second_secret=None if second is None else Hash32(second),
        answer=tokens_to_words(served.entry.tokens),
    )
    words = served.words
    if words is None:
        return made
    return replace(
        made,
        commitments=tuple(one for part in words.segments for one in part.commitments),
        verdicts=tuple(one for part in words.segments for one in part.verdicts),
        shown=() if key is None else tuple(_shown(served, domain, key)),
    )


def _shown(served: Served, domain: Domain, key: Key) -> Iterator[Shown]:
    """What node and verifiers opened to this client."""
    words = served.words
    assert words is not None
    for segment, part in enumerate(parts_of(served, words, served.openings, key, domain)):
        if part.node is not None:
            yield Shown(segment, served.admitted.nodes[segment], part.node)
        for party, opened in part.opened.items():
            yield Shown(segment, party, opened)
