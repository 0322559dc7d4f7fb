"""What the folded chain and a log's lines become in the index: pure functions from state and events to rows.

Whoever pays stays out: a case's client and opener, a tab's payer and a summoner are written as their part ("its
client"), never as their address, since each stands beside a node here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from troth.explorer.earning import most_in_lag
from troth.protocol.errors import ProtocolError
from troth.protocol.identifiers import group_id
from troth.protocol.market import events as on
from troth.protocol.market import log_data
from troth.protocol.market.ballots import members_of
from troth.protocol.market.court_money import unpack_movements
from troth.protocol.market.log_data import LoggedBallots, LogLine
from troth.protocol.market.proceedings import CaseState
from troth.protocol.market.signed import Opinion
from troth.protocol.market.state import CaseRecord, Party, State, account_id
from troth.protocol.market.types import ExecutionClass, Movement, PotKind, Role
from troth.protocol.rings import ring_in
from troth.protocol.types import Address, Hash32, Segment

Row = tuple[Any, ...]

AMOUNT_DIGITS = 30
"""A uint96 has at most 29 digits: amounts are text that sorts as numbers do."""
LATEST = 1 << 62
"""A block after every other: what is in force now."""
DEPLOYMENT = "deployment"
_ORDER = (
    ("case decided", on.CaseDecided),
    ("case opened", on.CaseOpened),
    ("reviews", on.ReviewsCommitted | on.ReviewPosted | on.Revealed),
    ("reviewers drawn", on.ReviewersDrawn | on.CaseRestarted | on.CaseSeeded),
    ("conviction by proof", on.FaultProven),
    ("summons", on.Summoned | on.SummonsAnswered | on.SummonsUnanswered | on.PassedOn | on.Responded | on.NodeSilent),
    ("log entry", on.EntryLogged),
    ("claim", on.Claimed | on.Objected | on.ObjectionAnswered | on.ClaimStruck | on.ClaimSettled),
    ("tab closed", on.TabClosed | on.TabClosing),
    ("tab opened", on.TabOpened | on.TabToppedUp),
    ("vouchers redeemed", on.TabRedeemed),
    ("registration", on.NodeRegistered | on.SchedulerRegistered),
    ("prices and slices", on.AskChanged | on.SliceChanged | on.EndpointChanged | on.PayoutChanged),
    ("leaving", on.Deregistered | on.StakeWithdrawn | on.Evicted),
    ("model or class", on.ModelRegistered | on.ClassRegistered),
    (DEPLOYMENT, on.Begun | on.PartCreated | on.Deployed),
    ("money", on.Moved | on.MovedMany | on.Collected | on.Withdrawn),
)


def amount_text(value: int) -> str:
    """An amount as the index keeps it."""
    return f"{value:0{AMOUNT_DIGITS}d}"


def plain(text: str, most: int) -> str:
    """A stranger's words, shortened, without signs that turn the direction of reading or cannot be seen."""
    return "".join(one for one in text[:most] if one.isprintable())


def hexadecimal(raw: bytes) -> str:
    """Bytes as pages and files show them."""
    return "0x" + raw.hex()


# ---------------------------------------------------------------------------------------------------------- parties


@dataclass(slots=True)
class GroupNames:
    """Which class and segment a group's hash stands for; found by trying all segments of the known models."""

    known: dict[Hash32, tuple[Hash32, Segment]] = field(default_factory=dict)
    tried: set[Hash32] = field(default_factory=set)

    def of(self, state: State) -> dict[Hash32, tuple[Hash32, Segment]]:
        """The groups of all registered classes."""
        for execution_class, definition in state.classes.items():
            model = state.models.get(definition.model)
            if execution_class in self.tried or model is None:
                continue
            self.tried.add(execution_class)
            layers = min(model.layers, 255)
            for first in range(layers):
                for end in range(first + 1, layers + 1):
                    segment = Segment(first, end)
                    self.known[group_id(execution_class, segment)] = (execution_class, segment)
        return self.known


def member_rows(state: State, names: GroupNames) -> list[Row]:
    """Who stands in which group now: class, first, end, operator, seats, asks."""
    known = names.of(state)
    made = []
    for group in state.sizes:
        if group not in known:
            continue
        execution_class, segment = known[group]
        for entry in state.members_at(group, LATEST):
            ask = state.ask_at(group, entry.operator, LATEST)
            where = (hexadecimal(execution_class), segment.first, segment.end)
            made.append((*where, entry.operator, entry.seats, ask.prompt, ask.cached, ask.written))
    return sorted(made)


def party_rows(state: State, members: Sequence[Row]) -> list[Row]:
    """Every node and scheduler with its stake and standing."""
    seats: dict[str, int] = defaultdict(int)
    for row in members:
        seats[row[3]] = max(seats[row[3]], row[4])
    made = []
    for party in state.parties.values():
        suspension = state.suspensions.get(party.operator)
        suspended = suspension is not None and not suspension.restored
        account = account_id(party.operator)
        hosted = (None, None) if party.hosted is None else (party.hosted.first, party.hosted.end)
        made.append(
            (
                party.operator,
                party.role.name.lower(),
                party.owner,
                plain(party.endpoint, 120),
                hexadecimal(party.execution_class) if party.role is Role.NODE else "",
                *hosted,
                party.registered.block,
                party.exit_block,
                amount_text(state.pot(PotKind.STAKE, account)),
                amount_text(state.pot(PotKind.LOCKED, account)),
                seats[party.operator],
                int(suspended),
                len(state.convictions.get(party.operator, ())),
                _tabs_of(state, party.operator) if party.role is Role.SCHEDULER else 0,
                amount_text(_earned_by(state, party)),
            )
        )
    return sorted(made)


def _earned_by(state: State, party: Party) -> int:
    if state.deployed is None:
        return 0
    entries = state.logs.get(party.operator, ())
    return most_in_lag(entries, party.registered.block, state.deployed.parameters.lag)


def _tabs_of(state: State, payee: Address) -> int:
    """How many tabs are open with a scheduler: their number is shown, not whose they are."""
    return sum(one.known and one.tab.payee == payee for one in state.tabs.values())


def class_rows(state: State) -> list[Row]:
    """Every class with its model."""
    return sorted(_class_row(name, definition, state) for name, definition in state.classes.items())


def _class_row(name: Hash32, definition: ExecutionClass, state: State) -> Row:
    model = state.models.get(definition.model)
    return (
        hexadecimal(name),
        plain(definition.name, 80),
        hexadecimal(definition.model),
        "" if model is None else plain(model.architecture, 80),
        0 if model is None else model.layers,
        int(definition.exact),
        definition.verifiers,
        definition.reviewers,
        definition.least_check_rate,
        amount_text(definition.penalty),
        amount_text(definition.seat),
        amount_text(definition.check_price),
        amount_text(definition.fee_cap),
    )


def ask_rows(events: Iterable[Any], state: State) -> list[Row]:
    """Asks as they changed: block, log index, class, first, end, operator and three prices."""
    return [
        (
            *(event.meta.block, event.meta.log_index),
            hexadecimal(state.parties[event.operator].execution_class),
            *(event.first, event.end, event.operator),
            *(event.ask.prompt, event.ask.cached, event.ask.written),
        )
        for event in events
        if isinstance(event, on.AskChanged) and event.operator in state.parties
    ]


# ------------------------------------------------------------------------------------------------------------ court


def case_rows(state: State, wanted: Iterable[Hash32]) -> list[Row]:
    """Cases as they stand."""
    return [_case_row(state.cases[one]) for one in sorted(set(wanted)) if one in state.cases]


def _case_row(record: CaseRecord) -> Row:
    opened, last, case = record.events[0], record.events[-1], record.state
    return (
        hexadecimal(record.case_id),
        hexadecimal(case.order),
        case.segment,
        case.node,
        case.scheduler,
        case.kind.name.lower(),
        case.phase.name.lower(),
        case.round,
        "" if record.outcome is None else record.outcome.name.lower(),
        opened.meta.block,
        last.meta.block,
        opener_part(case),
        amount_text(case.bond),
        amount_text(case.fee),
        hexadecimal(case.execution_class),
        len(case.reviewers),
    )


def opener_part(case: CaseState) -> str:
    """Who opened a case, by the part that it has in it."""
    if case.opener == case.client:
        return "its client"
    return "a verifier" if case.opener in case.verifiers else "another party"


def case_event_rows(events: Sequence[Any], state: State) -> list[Row]:
    """The life of cases: case, block, log index, number, transaction, lane, words, amount (empty: none)."""
    made = []
    for event in events:
        case_id = _case_of(event, state)
        if case_id is None or case_id not in state.cases:
            continue
        case, meta = _opening(case_id, event, state), event.meta
        for number, (lane, words, amount) in enumerate(_lanes(event, case, state)):
            place = (meta.block, meta.log_index, number, hexadecimal(meta.transaction))
            made.append((hexadecimal(case_id), *place, lane, words, amount))
    return made


def _opening(case_id: Hash32, event: Any, state: State) -> CaseState:
    """A case as it was opened before an event: a leaf may be judged again after a first case ended."""
    records = [one for one in state.earlier_cases if one.case_id == case_id] + [state.cases[case_id]]
    begun = [one for one in records if one.events[0].meta.block <= event.meta.block]
    opened: CaseState = (begun or records)[-1].events[0].state
    return opened


def _case_of(event: Any, state: State) -> Hash32 | None:
    if isinstance(event, on.MovedMany | on.Moved | on.Convicted | on.Collected):
        return event.subject if event.subject in state.cases else None
    found: Hash32 | None = getattr(event, "case_id", None)
    return found


def _lanes(event: Any, case: CaseState, state: State) -> Iterator[tuple[str, str, str]]:
    """What an event says, each with its lane."""
    if isinstance(event, on.Collected):
        yield "money", "came in", amount_text(event.amount)
    elif isinstance(event, on.Moved | on.MovedMany):
        for words, amount in _money(_movements((event,)), case, state):
            yield "money", words, amount_text(amount)
    else:
        yield from ((lane, words, "") for lane, words in _told(event, case))


def _told(event: Any, case: CaseState) -> Iterator[tuple[str, str]]:  # noqa: PLR0912 -- one branch a kind of event
    match event:
        case on.CaseOpened():
            yield "opener", f"opened by {opener_part(event.state)}: {event.state.kind.name.lower()}"
        case on.ReviewersDrawn():
            yield "court", f"{len(event.reviewers)} reviewers drawn for round {event.round + 1}"
        case on.ReviewPosted():
            yield "reviewers", f"{event.reviewer} committed"
        case on.ReviewsCommitted():
            yield "court", f"{len(event.commitments)} commitments are complete"
        case on.CaseSeeded():
            yield "court", "the tiles to open are known"
        case on.Revealed():
            lane = "node" if event.party == case.node else "reviewers"
            yield lane, f"{event.party} showed its part"
        case on.CaseRestarted():
            yield "court", f"no majority: round {event.round + 1}"
        case on.CaseDecided():
            yield "court", f"decided: {event.outcome.name.lower().replace('_', ' ')}"
        case on.LeafVoided():
            yield "court", f"the work on segment {event.segment} is void"
        case on.Pooled():
            yield "court", f"counted as outcome {event.count} of its owner between the cuts"
        case on.Suspended():
            yield "node", f"{event.operator} is out of all draws"
        case on.Restored():
            yield "node", f"{event.operator} is back in draws"
        case on.Convicted():
            yield "node", f"{event.operator} is convicted"


def _money(movements: Iterable[Movement], case: CaseState, state: State) -> Iterator[tuple[str, int]]:
    """What moved, summed by the parts that parties have: "from the node to its client"."""
    parts = _parts(case, state)
    sums: Counter[tuple[str, str]] = Counter()
    for one in movements:
        source, target = _end(one.from_kind, one.from_id, parts), _end(one.to_kind, one.to_id, parts)
        if source != target:
            sums[source, target] += one.amount
    for (source, target), amount in sums.items():
        yield f"from {source}, burnt" if target == "burnt" else f"from {source} to {target}", amount


def _parts(case: CaseState, state: State) -> dict[Hash32, str]:
    named: dict[Hash32, str] = {}
    for account, words in (
        *((one, "verifiers") for one in case.verifiers),
        (case.scheduler, "the scheduler"),
        (case.node, "the node"),
    ):
        named |= {account_id(state.owner_of(account)): words, account_id(account): words}
    return named | {account_id(case.opener): opener_part(case), account_id(case.client): "its client"}


def _end(kind: PotKind, pot: Hash32, parts: Mapping[Hash32, str]) -> str:
    if kind in {PotKind.BURNT, PotKind.TAB, PotKind.BOND}:
        return {PotKind.BURNT: "burnt", PotKind.TAB: "the tab", PotKind.BOND: "the bond"}[kind]
    who = parts.get(pot, "reviewers and others")
    return f"{who}'s lock" if kind is PotKind.LOCKED else who


# ---------------------------------------------------------------------------------------------------------- slashes


def slash_rows(events: Sequence[Any], state: State) -> list[Row]:
    """Convictions with what was taken, why, and what shows it; silence that was paid for."""
    by_transaction: dict[Hash32, list[Any]] = defaultdict(list)
    for event in events:
        by_transaction[event.meta.transaction].append(event)
    made = []
    for event in events:
        if isinstance(event, on.Convicted):
            taken, burnt = _taken(by_transaction[event.meta.transaction], event.operator, event.subject)
            reason = event.fault.name.lower()
            bounds = (event.void_from, event.void_until)
            made.append(
                _slash(
                    event,
                    event.operator,
                    reason=reason,
                    subject=event.subject,
                    state=state,
                    sums=(taken, burnt),
                    void=bounds,
                )
            )
        elif isinstance(event, on.NodeSilent):
            sums = (event.taken, 0)
            subject, reason = event.summons_id, "silent_when_summoned"
            made.append(_slash(event, event.node, reason=reason, subject=subject, state=state, sums=sums, void=(0, 0)))
    return made


def _slash(
    event: Any,
    operator: Address,
    *,
    reason: str,
    subject: Hash32,
    state: State,
    sums: tuple[int, int],
    void: tuple[int, int],
) -> Row:
    evidence = "case" if subject in state.cases else "summons" if subject in state.summons else "signatures"
    party = state.parties.get(operator)
    role = "party" if party is None else party.role.name.lower()
    meta = event.meta
    place = (meta.block, meta.log_index, hexadecimal(meta.transaction))
    return (*place, operator, role, reason, evidence, hexadecimal(subject), *map(amount_text, sums), *void)


def _taken(events: Iterable[Any], convict: Address, subject: Hash32) -> tuple[int, int]:
    """What left a convict's stake in one transaction, and what of it was burnt: at once, or out of the case's bond."""
    account = account_id(convict)
    own = {(PotKind.STAKE, account), (PotKind.LOCKED, account)}
    taken = burnt = 0
    for one in _movements(events):
        if (one.from_kind, one.from_id) in own and (one.to_kind, one.to_id) not in own:
            taken += one.amount
        if one.to_kind is PotKind.BURNT and (one.from_kind, one.from_id) in own | {(PotKind.BOND, subject)}:
            burnt += one.amount
    return taken, min(burnt, taken)


def _movements(events: Iterable[Any]) -> Iterator[Movement]:
    for event in events:
        if isinstance(event, on.Moved):
            yield Movement(event.from_kind, event.from_id, event.to_kind, event.to_id, event.amount)
        elif isinstance(event, on.MovedMany):
            yield from unpack_movements(event.subject, event.movements)


# ------------------------------------------------------------------------------------------------------------- logs


def entry_rows(events: Iterable[Any]) -> list[Row]:
    """Log entries as they were posted."""
    return [
        (
            *(event.scheduler, event.number, event.meta.block, hexadecimal(event.meta.transaction)),
            *(hexadecimal(event.root), hexadecimal(event.data_hash), event.counts.orders, event.counts.positions),
            *(event.counts.drawn, event.counts.checked, event.counts.rejected, event.counts.unrevealed),
            amount_text(event.counts.fees),
        )
        for event in events
        if isinstance(event, on.EntryLogged)
    ]


def task_rows(scheduler: Address, number: int, lines: Iterable[LogLine], wrong: Mapping[str, int]) -> list[Row]:
    """The orders of a served entry; ``wrong`` counts the findings over each."""
    return [
        (
            line.block_bucket,
            line.order,
            scheduler,
            number,
            line.execution_class,
            line.positions_bucket,
            line.check_rate,
            len(line.results),
            *(int(bool(line.secret)), int(_drawn(line))),
            *(int(bool(log_data.opinions_in(line))), int(log_data.is_rejected(line))),
            wrong.get(line.order, 0),
        )
        for line in lines
    ]


def _drawn(line: LogLine) -> bool:
    """Whether the lottery hit; a line that nobody can read is not drawn, and M16 says so."""
    try:
        return log_data.is_drawn(line)
    except ValueError:
        return False


def work_rows(scheduler: Address, number: int, lines: Iterable[LogLine]) -> list[Row]:
    """Who inferred and who checked which order: operator, bucket, order, scheduler, number, part, segment, opinion.

    Who is in a ring has checked; what it said is "veiled".
    """
    made = []
    for line in lines:
        place = (line.block_bucket, line.order, scheduler, number)
        for segment, seen in enumerate(line.results):
            made.append((seen.node, *place, "infer", segment, ""))
        for said in line.verdicts:
            opinions = {int(one): one.name.lower() for one in Opinion}
            made.append((said.verifier, *place, "check", said.segment, opinions.get(said.opinion, "unknown")))
        for one in log_data.ballots_in(line):
            made += [(member, *place, "check", one.segment, "veiled") for member in _members(one)]
    return made


def _members(ballots: LoggedBallots) -> tuple[Address, ...]:
    """Who is in a ring; nobody where it is none, and M16 says so."""
    try:
        return members_of(ring_in(log_data.read_bytes(ballots.ring)))
    except ProtocolError:
        return ()


def order_of(task: Hash32 | None) -> str:
    """A finding's task as the index names orders."""
    return "" if task is None else hexadecimal(task)


# -------------------------------------------------------------------------------------------------------------- gas


def transaction_rows(events: Sequence[Any]) -> list[Row]:
    """Every transaction with what it was for: hash, block, kind."""
    seen: dict[Hash32, tuple[int, list[Any]]] = {}
    for event in events:
        seen.setdefault(event.meta.transaction, (event.meta.block, []))[1].append(event)
    return [(hexadecimal(name), block, _kind(within)) for name, (block, within) in seen.items()]


def _kind(events: Sequence[Any]) -> str:
    for words, kinds in _ORDER:
        if any(isinstance(event, kinds) for event in events):
            return words
    return "other"
