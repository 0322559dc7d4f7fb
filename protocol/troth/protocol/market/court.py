"""The court: who judges one result, and what the reviewers' reveals decide (contracts Docket and Judgement).

A case runs Opened -> Drawn -> Committed -> Seeded (tolerant classes) -> decided. Reviewers are m' seasoned seats,
drawn by a RANDAO that did not exist when the results were signed, from the members of the order's block. They commit
before they see each other's traces, open tiles that a later RANDAO picks, and are clustered by agreement, as in
VeriLLM's Appendix E. A cluster weighs its seats: whoever splits its stake over twenty addresses gains nothing.

More than half of all m' seats decide; two thirds take stake. An owner that is outvoted pays for its seats, one that is
silent too, and who cannot tell does not.

To find clusters, the paper runs Kruskal's algorithm and stops at distance 2ρ. What is left are the connected components
of the graph whose edges are the pairs within that distance, so agreement as yes or no is all that is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from troth.protocol.agreement import AgreementRule
from troth.protocol.errors import InvalidField
from troth.protocol.market import draws, messages
from troth.protocol.market.checks import OrderView
from troth.protocol.market.draws import DrawnSeats
from troth.protocol.market.economy import supermajority
from troth.protocol.market.errors import InvalidCase
from troth.protocol.market.proceedings import CaseKind, CasePhase, CaseState, Outcome
from troth.protocol.market.signed import Opinion, Order
from troth.protocol.market.types import Parameters, Rules
from troth.protocol.tensors import Dtype
from troth.protocol.types import Address, Hash32

SUMMONS_WINDOWS = 15
"""Windows of a summons that is passed on as often as it can be, and two for who opens a case then.

Fewer, and a check that friends were asked for in turn would end when no court hears the case any more."""
INCLUSION = 4
"""Blocks that a transaction may wait."""
TOLD = frozenset({Opinion.ACCEPT, Opinion.REJECT})
"""Opinions that stand on a trace of one's own."""


def clusters(members: Iterable[int], edges: Iterable[tuple[int, int]]) -> list[frozenset[int]]:
    """The connected components of ``members`` under ``edges``, in the order of their smallest member.

    Raises InvalidField if an edge names a party that is no member.
    """
    parents = {member: member for member in sorted(members)}
    for edge in edges:
        if not parents.keys() >= set(edge):
            raise InvalidField("An agreement names a party outside the members", edge, "List every party as a member.")
        first, second = sorted(_root(parents, end) for end in edge)
        parents[second] = first
    components: dict[int, set[int]] = {}
    for member in parents:
        components.setdefault(_root(parents, member), set()).add(member)
    return [frozenset(component) for component in components.values()]


def _root(parents: dict[int, int], member: int) -> int:
    while parents[member] != member:
        parents[member] = parents[parents[member]]
        member = parents[member]
    return member


# ------------------------------------------------------------------------------------------------------ opening a case


def last_opening_block(draw_block: int, parameters: Parameters) -> int:
    """Last block in which a case over a result can be opened: the lag, and a summons that was passed on."""
    return draw_block + parameters.lag + SUMMONS_WINDOWS * parameters.summons_window


def answer_age(parameters: Parameters) -> int:
    """Blocks from an order's reference block to the last draw over its results that the court hears.

    Also that of a leaf which is shown for the first time at the end of a claim that waited for another claim on its tab
    to end; but no later than stake is there.
    """
    opened = last_opening_block(parameters.reference_age, parameters)
    return min(opened + 2 * parameters.claim_delay + parameters.answer_window, parameters.unbonding - INCLUSION - 1)


def last_case_block(reference_block: int, parameters: Parameters) -> int:
    """The last block in which a case over any answer to an order can be opened for the first time."""
    return last_opening_block(reference_block + answer_age(parameters), parameters)


def kind_of(majority: Opinion | None) -> CaseKind:
    """What kind of case a check's majority leaves; None: the leaf was not drawn, so no secret and no verdict is shown.

    Where no majority rejects a drawn leaf, too few judged or they accepted: only its client calls that into question.
    """
    if majority is None:
        return CaseKind.DOUBT
    return CaseKind.REJECTION if majority is Opinion.REJECT else CaseKind.ACCEPTANCE


def require_opener(kind: CaseKind, opener: Address, view: OrderView) -> None:
    """Raise InvalidCase unless ``opener`` may open such a case: a rejection anyone, what is private only its client."""
    if kind is not CaseKind.REJECTION and opener not in {view.tab.payer, view.tab.key}:
        raise InvalidCase(
            "Only the client or its tab key opens such a case", opener, "Give the evidence to the client."
        )


def case_of(state: CaseState) -> Hash32:
    """The id of a case; that of a doubt is another than that of a rejection of the same result."""
    doubts = messages.DOUBTS if state.kind is CaseKind.DOUBT else 0
    return messages.case_id(state.order, doubts + state.segment)


def reviewers(order: Order, state: CaseState, randao: Hash32, view: OrderView) -> DrawnSeats:
    """The reviewers of a case's round, as seats; nobody with a part in it is drawn (``state.excluded``)."""
    case = case_of(state)
    span = view.segments(order)[state.segment]
    seed = messages.court_seed(case, state.round, randao)
    request = draws.reviewers_request(order, view.rules, span, seed, state.excluded)
    group = view.groups[state.segment]
    return draws.draw(request, group, seat_cap=view.rules.seat_cap, seasoning=view.seasoning)


def expires_after(state: CaseState, parameters: Parameters, exact: bool) -> int:
    """Last block of a case's phase: after it anyone may expire it, or decide with the reveals that are there."""
    proof = parameters.lookahead + parameters.draw_window
    revealing = exact or state.phase is CasePhase.SEEDED
    windows = {
        CasePhase.OPENED: proof,
        CasePhase.DRAWN: parameters.commit_window,
        CasePhase.COMMITTED: parameters.reveal_window if revealing else proof,
        CasePhase.SEEDED: parameters.reveal_window,
    }
    if state.phase not in windows:
        raise InvalidCase("The case is not on its way", state.phase, "Look up its outcome.")
    return state.phase_block + windows[state.phase]


def may_end_commitments(state: CaseState, committed: Sequence[bool], block: int, parameters: Parameters) -> bool:
    """Whether the commitments can be ended: all at once; more than half of the seats in the window's last quarter.

    Otherwise whoever is first with a friendly half of the commitments leaves the others out.
    """
    window = parameters.commit_window
    if block > state.phase_block + window:
        return False
    seats = sum(seats for seats, shown in zip(state.seats, committed, strict=True) if shown)
    late = block > state.phase_block + window * 3 // 4
    return seats == sum(state.seats) or (late and 2 * seats > sum(state.seats))


# ---------------------------------------------------------------------------------------------------------- deciding


@dataclass(frozen=True, slots=True)
class Showing:
    """What a party revealed, once it fits its commitment: root, tiles (unmasked; none in an exact class), opinion.

    ``score`` is the node's, ``spread`` the reviewers' own noise on this prompt, both in millionths of the first cut.
    """

    root: Hash32
    tiles: bytes = b""
    opinion: Opinion = Opinion.NONE
    score: int = 0
    spread: int = 0


@dataclass(frozen=True, slots=True)
class Hearing:
    """All that a case is decided on: each reviewer's seats and showing (None: silent), and the node's."""

    kind: CaseKind
    seats: Sequence[int]
    reveals: tuple[Showing | None, ...]
    node: Showing | None


@dataclass(frozen=True, slots=True)
class CaseFinding:
    """What the openings of a case say; sets hold indices of reviewers. Outcome NONE: there is no proper cluster.

    ``node``: it shows its trace. ``paid``: the cluster told something and earned its reward. ``telling``: said yes or
    no, and showed tiles. ``wrong``: said so outside of a cluster that says one of them. ``pooled``: the outcome counts
    in the pool of the node's owner.
    """

    outcome: Outcome
    cluster: frozenset[int] = frozenset()
    paid: bool = False
    silent: frozenset[int] = frozenset()
    telling: frozenset[int] = frozenset()
    wrong: frozenset[int] = frozenset()
    score: int = 0
    spread: int = 0
    pooled: bool = False
    node: bool = False


def judge(hearing: Hearing, rules: Rules) -> CaseFinding:
    """Clusters the reviewers and decides; raises InvalidCase for a hearing of another committee.

    (1) Who accepts a trace that its own contradicts is in no cluster. (2) Same opinion and agreeing traces make a
    cluster; where there was nothing to compute, the opinion does. (3) More than half of all seats make a cluster
    proper. (4) A missing prompt loses the case for who opened it, first of all, so that a sham case acquits nobody.
    (5) A node that shows nothing has lost; in a doubt only the leaf falls. (6) An accepting cluster upholds. (7) A
    rejecting one convicts with two thirds of all seats if the class is exact, or the score lies beyond the second cut
    and twice the spread; else the leaf falls, and is pooled if it lies beyond twice the spread (a doubt: beyond both).
    (8) Two thirds that miss
    rows convict who owed them; votes that the node withheld its rows count with those that its rows are false. (9)
    Any other proper cluster refunds.
    """
    if len(hearing.seats) != len(hearing.reveals) or sum(hearing.seats) != rules.reviewers:
        what = f"A committee has {rules.reviewers} seats, and each reviewer a reveal or none"
        raise InvalidCase(what, hearing.seats, "Pass the reviewers that were drawn.")
    shown = {index: one for index, one in enumerate(hearing.reveals) if one is not None}
    cluster = _proper_cluster(hearing, shown, rules)
    opinion = shown[min(cluster)].opinion if cluster else Opinion.NONE
    told = opinion in TOLD
    compared = [(shown[index], hearing.seats[index]) for index in cluster] if told and not rules.exact else []
    finding = CaseFinding(
        outcome=Outcome.NONE,
        cluster=cluster,
        paid=opinion not in {Opinion.NONE, Opinion.CANNOT_TELL},
        silent=frozenset(range(len(hearing.seats))) - shown.keys(),
        telling=_saying(shown, *TOLD),
        # A node that shows nothing proves nobody wrong.
        wrong=_saying(shown, *TOLD) - cluster if told and hearing.node else frozenset(),
        score=weighted_median([(one.score, seats) for one, seats in compared]),
        spread=weighted_median([(one.spread, seats) for one, seats in compared]),
        node=hearing.node is not None,
    )
    return _conclude(finding, hearing, shown, rules, opinion)


def _conclude(
    finding: CaseFinding, hearing: Hearing, shown: Mapping[int, Showing], rules: Rules, opinion: Opinion
) -> CaseFinding:
    doubt = hearing.kind is CaseKind.DOUBT
    # Within twice the reviewers' own noise nothing is held against anybody: prompts can be noisy.
    apart = rules.exact or finding.score > 2 * finding.spread
    beyond = rules.exact or (apart and finding.score > rules.second_cut)
    strong = _is_strong(finding.cluster, hearing, shown, rules, opinion)
    if opinion is Opinion.MISSING_PROMPT:
        return replace(finding, outcome=Outcome.OPENER_MISSING)
    if hearing.node is None:
        return replace(finding, outcome=Outcome.REFUNDED if doubt else Outcome.NODE_MISSING)
    if opinion is Opinion.NONE:
        return finding
    if opinion is Opinion.ACCEPT:
        return replace(finding, outcome=Outcome.UPHELD)
    if opinion is Opinion.REJECT and strong:
        if beyond and not doubt:
            return replace(finding, outcome=Outcome.CONVICTED)
        # Of what a client chose only what is beyond both cuts counts: chance did not choose it.
        return replace(finding, outcome=Outcome.REFUNDED, pooled=beyond if doubt else apart)
    owing = {Opinion.MISSING_TRACE: Outcome.NODE_MISSING, Opinion.MISSING_INPUT: Outcome.SCHEDULER_MISSING}
    convicted = owing.get(opinion, Outcome.REFUNDED) if strong and not doubt else Outcome.REFUNDED
    return replace(finding, outcome=convicted)


def _is_strong(
    cluster: frozenset[int], hearing: Hearing, shown: Mapping[int, Showing], rules: Rules, opinion: Opinion
) -> bool:
    """Whether two thirds of all seats convict."""
    against = {Opinion.REJECT: Opinion.MISSING_TRACE, Opinion.MISSING_TRACE: Opinion.REJECT}
    convicting = cluster | (_saying(shown, against[opinion]) if opinion in against else frozenset())
    return sum(hearing.seats[index] for index in convicting) >= supermajority(rules.reviewers)


def weighted_median(weighted: Sequence[tuple[int, int]]) -> int:
    """The smallest value that at least half of the weight does not exceed; 0 of nothing."""
    total, passed = sum(weight for _, weight in weighted), 0
    for value, weight in sorted(weighted):
        passed += weight
        if 2 * passed >= total:
            return value
    return 0


def _saying(shown: Mapping[int, Showing], *opinions: Opinion) -> frozenset[int]:
    return frozenset(index for index, one in shown.items() if one.opinion in opinions)


def _proper_cluster(hearing: Hearing, shown: Mapping[int, Showing], rules: Rules) -> frozenset[int]:
    valid = [index for index, one in shown.items() if _is_consistent(one, hearing.node, rules)]
    edges = [pair for pair in combinations(valid, 2) if _same(shown[pair[0]], shown[pair[1]], rules)]
    proper = (one for one in clusters(valid, edges) if 2 * sum(hearing.seats[index] for index in one) > rules.reviewers)
    return next(proper, frozenset())


def _is_consistent(own: Showing, node: Showing | None, rules: Rules) -> bool:
    return own.opinion is not Opinion.ACCEPT or node is None or _agree(own, node, rules)


def _same(first: Showing, second: Showing, rules: Rules) -> bool:
    return first.opinion is second.opinion and (first.opinion not in TOLD or _agree(first, second, rules))


def _agree(first: Showing, second: Showing, rules: Rules) -> bool:
    if rules.exact or first.root == second.root:
        return first.root == second.root
    rule = AgreementRule(Dtype(rules.dtype), rules.mantissa_bits, rules.steps, rules.theta)
    return rule.agrees(first.tiles, second.tiles)
