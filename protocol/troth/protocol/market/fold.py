"""The fold: ``apply(event, state)`` is the next state. Pure, total over ``Event``, and the auditor's core.

Every event carries what is true after it, so that a missing or repeated log shows at the next one: InvalidField then.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn, assert_never

from troth.protocol.errors import InvalidField
from troth.protocol.market import events as on
from troth.protocol.market.court_money import OutcomePool, unpack_movements
from troth.protocol.market.events import BankEvent, CourtEvent, Event, RegistryEvent, SummonsEvent
from troth.protocol.market.proceedings import CasePhase, CaseState
from troth.protocol.market.state import (
    NOTHING,
    AnsweredLeaf,
    CaseRecord,
    ClaimRecord,
    ConvictionRecord,
    LoggedEntry,
    Objection,
    Party,
    State,
    SummonsRecord,
    Suspension,
    TabRecord,
    account_id,
    with_pot,
    without,
)
from troth.protocol.market.types import NO_ADDRESS, NO_HASH, PotKind, Role, Tab
from troth.protocol.types import Address, Hash32, Segment

REMEDY = "A log is missing; follow the chain anew."
ClaimEvent = on.Claimed | on.Objected | on.ObjectionAnswered | on.ClaimStruck | on.ClaimSettled
TabEvent = on.TabOpened | on.TabToppedUp | on.TabRedeemed | on.TabForgiven | on.TabClosing | on.TabClosed
GroupEvent = on.AskChanged | on.EntryChanged
StandingEvent = on.Suspended | on.Restored | on.Convicted | on.Evicted | on.StakeWithdrawn


def apply(event: Event, state: State) -> State:
    """The state after ``event``; raises InvalidField for an event that cannot follow (a log is missing or repeated)."""
    if isinstance(event, BankEvent):
        return _money(event, state)
    if isinstance(event, RegistryEvent):
        return _registry(event, state)
    if isinstance(event, CourtEvent):
        return _court(event, state)
    if isinstance(event, SummonsEvent):
        return _summons(event, state)
    match event:
        case on.FaultProven():
            return replace(state, proven=state.proven.set(event.subject, event))
        case on.EntryLogged():
            return _logged(event, state)
        case on.ModelRegistered():
            return replace(state, models=state.models.set(event.model, event.descriptor))
        case on.ClassRegistered():
            return replace(state, classes=state.classes.set(event.execution_class, event.definition))
        case on.Deployed():
            return replace(state, deployed=event)
        case on.Begun() | on.PartCreated():
            return state
        case _:
            assert_never(event)


def _refuse(what: str, value: object) -> NoReturn:
    raise InvalidField(what, value, REMEDY)


# ---------------------------------------------------------------------------------------------------------- money


def _money(event: BankEvent, state: State) -> State:
    if isinstance(event, ClaimEvent):
        return _claims(event, state)
    if isinstance(event, TabEvent):
        return _tabs(event, state)
    match event:
        case on.Moved():
            return _moved(event, state)
        case on.MovedMany():
            return _moved_many(event, state)
        case on.Collected():
            return _came(state, event.kind, event.id, event.amount, event.balance)
        case on.Withdrawn():
            pot = account_id(event.account)
            rest = state.pot(PotKind.CREDIT, pot) - event.amount
            if rest < 0:
                _refuse("More credit was paid out than there was", event)
            return with_pot(replace(state, went_out=state.went_out + event.amount), PotKind.CREDIT, pot, rest)
        case _:
            assert_never(event)


def _came(state: State, kind: PotKind, pot: Hash32, amount: int, balance: int) -> State:
    """Money from outside."""
    if state.pot(kind, pot) + amount != balance:
        _refuse("The pot holds another sum than what was there and what came in", (kind.name, pot, amount, balance))
    return with_pot(replace(state, came_in=state.came_in + amount), kind, pot, balance)


def _tabs(event: TabEvent, state: State) -> State:
    match event:
        case on.TabOpened():
            return _tab_opened(event, state)
        case on.TabToppedUp():
            return _came(state, PotKind.TAB, event.tab, event.amount, event.balance)
        case on.TabRedeemed():
            return _redeemed(event, state)
        case on.TabForgiven():
            before = _tab(state, event.tab)
            if before.redeemed + event.amount != event.redeemed:
                _refuse("What was redeemed of a tab only grows, by what was paid", event)
            return _with_tab(state, event.tab, redeemed=event.redeemed, forgiven=before.forgiven + event.amount)
        case on.TabClosing():
            return _with_tab(state, event.tab, closes_at=event.closes_at)
        case on.TabClosed():
            return _tab_closed(event, state)
        case _:
            assert_never(event)


def _moved(event: on.Moved, state: State) -> State:
    taken = state.pot(event.from_kind, event.from_id) - event.amount
    if event.from_kind is PotKind.BURNT or taken < 0 or taken != event.from_balance:
        _refuse("The pot that money left holds another sum than before less what left", event)
    state = with_pot(state, event.from_kind, event.from_id, event.from_balance)
    given = state.pot(event.to_kind, event.to_id) + event.amount
    if given != event.to_balance:
        _refuse("The pot that money came to holds another sum than before and what came", event)
    return with_pot(state, event.to_kind, event.to_id, event.to_balance)


def _moved_many(event: on.MovedMany, state: State) -> State:
    for one in unpack_movements(event.subject, event.movements):
        left = state.pot(one.from_kind, one.from_id) - one.amount
        if one.from_kind is PotKind.BURNT or left < 0:
            _refuse("A pot paid more than it held", event)
        state = with_pot(state, one.from_kind, one.from_id, left)
        state = with_pot(state, one.to_kind, one.to_id, state.pot(one.to_kind, one.to_id) + one.amount)
    return state


def _tab_opened(event: on.TabOpened, state: State) -> State:
    known = state.tabs.get(event.tab)
    tab = Tab(event.payer, event.payee, event.key)
    record = TabRecord(tab) if known is None else known
    if record.tab != tab or (known is not None and known.known):
        _refuse("A tab keeps its accounts for ever, and is opened while it is closed", event)
    amount = event.balance - state.pot(PotKind.TAB, event.tab)
    opened = replace(state, tabs=state.tabs.set(event.tab, replace(record, closes_at=0, known=True)))
    return _came(opened, PotKind.TAB, event.tab, amount, event.balance)


def _redeemed(event: on.TabRedeemed, state: State) -> State:
    record = _tab(state, event.tab)
    redeemed, balance = record.redeemed + event.paid, state.pot(PotKind.TAB, event.tab) - event.paid
    if balance < 0:
        _refuse("A tab paid more than it held", event)
    credit = account_id(record.tab.payee)
    state = with_pot(_with_tab(state, event.tab, redeemed=redeemed), PotKind.TAB, event.tab, balance)
    return with_pot(state, PotKind.CREDIT, credit, state.pot(PotKind.CREDIT, credit) + event.paid)


def _tab_closed(event: on.TabClosed, state: State) -> State:
    """The rest leaves; what the payer does not take comes back by the ``Collected`` that follows."""
    if state.pot(PotKind.TAB, event.tab) != event.returned:
        _refuse("A closed tab returns all that it holds", event)
    state = replace(_with_tab(state, event.tab, closes_at=0, known=False), went_out=state.went_out + event.returned)
    return with_pot(state, PotKind.TAB, event.tab, 0)


def _claims(event: ClaimEvent, state: State) -> State:
    if isinstance(event, on.Claimed):
        if _tab(state, event.tab).claim is not None:
            _refuse("A tab has one claim at a time", event)
        return _with_tab(state, event.tab, claim=ClaimRecord(event.claim_id, event.state))
    record = _tab(state, event.tab)
    claim = record.claim
    if claim is None or claim.claim_id != event.claim_id:
        _refuse("No such claim is under way", event)
    match event:
        case on.Objected():
            asked = Objection(event.objector, event.deposit, event.deadline)
            return _with_objections(state, event.tab, claim, claim.objections.set(event.sequence, asked))
        case on.ObjectionAnswered():
            if event.sequence not in claim.objections:
                _refuse("Nobody asked for that leaf", event)
            before = claim.answered.get(event.sequence)
            leaf = AnsweredLeaf(event.amount, 1 if before is None else before.times + 1)
            answered = replace(claim, answered=claim.answered.set(event.sequence, leaf))
            return _with_objections(state, event.tab, answered, without(claim.objections, event.sequence))
        case on.ClaimStruck():
            left = replace(claim, objections=without(claim.objections, event.sequence))
            # Without a deposit nothing is left to bring back.
            struck = tuple(one for one in (*record.struck, left) if state.held_objections(one))
            return _with_tab(state, event.tab, claim=None, struck=struck)
        case on.ClaimSettled():
            if not event.short:
                return _with_tab(state, event.tab, claim=None, settled=claim)
            shown = max(record.shown, event.owed)
            return _with_tab(state, event.tab, claim=None, settled=claim, shown=shown, shown_block=event.meta.block)
        case _:
            assert_never(event)


def _with_objections(state: State, tab: Hash32, claim: ClaimRecord, objections: Any) -> State:
    return _with_tab(state, tab, claim=replace(claim, objections=objections))


def _tab(state: State, tab: Hash32) -> TabRecord:
    record = state.tabs.get(tab)
    if record is None:
        _refuse("The tab was never opened", tab)
    return record


def _with_tab(state: State, tab: Hash32, **changes: Any) -> State:
    return replace(state, tabs=state.tabs.set(tab, replace(_tab(state, tab), **changes)))


# -------------------------------------------------------------------------------------------- parties and groups


def _registry(event: RegistryEvent, state: State) -> State:
    if isinstance(event, GroupEvent):
        return _asked(event, state) if isinstance(event, on.AskChanged) else _entry_changed(event, state)
    if isinstance(event, StandingEvent):
        return _standing(event, state)
    match event:
        case on.NodeRegistered() | on.SchedulerRegistered():
            return replace(state, parties=state.parties.set(event.operator, _party(event)))
        case on.EndpointChanged():
            return _changed(state, event.operator, endpoint=event.endpoint, tls_key_hash=event.tls_key_hash)
        case on.PayoutChanged():
            return _changed(state, event.operator, payout=event.payout)
        case on.SliceChanged():
            return _slice_changed(event, state)
        case on.Deregistered():
            return _changed(state, event.operator, exit_block=event.exit_block)
        case _:
            assert_never(event)


def _standing(event: StandingEvent, state: State) -> State:
    match event:
        case on.Suspended():
            suspended = Suspension(event.case_id, event.meta.block)
            return replace(state, suspensions=state.suspensions.set(event.operator, suspended))
        case on.Restored():
            return _restored(event, state)
        case on.Convicted():
            return _convicted(event, state)
        case on.Evicted() | on.StakeWithdrawn():
            return state
        case _:
            assert_never(event)


def _party(event: on.NodeRegistered | on.SchedulerRegistered) -> Party:
    common = {
        "operator": event.operator,
        "owner": event.owner,
        "payout": event.payout,
        "endpoint": event.endpoint,
        "tls_key_hash": event.tls_key_hash,
        "registered": event.meta,
    }
    if isinstance(event, on.NodeRegistered):
        hosted = Segment(event.first, event.end)
        slices = ((event.meta.block, hosted),)
        registered = {"execution_class": event.execution_class, "hosted": hosted, "slices": slices}
        return Party(role=Role.NODE, **registered, **common)  # type: ignore[arg-type]
    return Party(role=Role.SCHEDULER, vrf_key=(event.vrf_x, event.vrf_y), **common)  # type: ignore[arg-type]


def _slice_changed(event: on.SliceChanged, state: State) -> State:
    party = state.parties.get(event.operator)
    hosted = Segment(event.first, event.end)
    # A change in the block of the registration counts as one: the chain keeps the slice from then on.
    slices = (*(party.slices if party is not None else ()), (event.meta.block, hosted))
    return _changed(state, event.operator, hosted=hosted, slices=slices)


def _changed(state: State, operator: Address, **changes: Any) -> State:
    party = state.parties.get(operator)
    if party is None:
        _refuse("The operator was never registered", operator)
    return replace(state, parties=state.parties.set(operator, replace(party, **changes)))


def _asked(event: on.AskChanged, state: State) -> State:
    if event.operator not in state.parties:
        _refuse("The operator was never registered", event.operator)
    key = (state.group_of(event.operator, Segment(event.first, event.end)), event.operator)
    history = _from_now(state.asks.get(key, NOTHING), event.meta.block, event.ask)
    return replace(state, asks=state.asks.set(key, history))


def _entry_changed(event: on.EntryChanged, state: State) -> State:
    """What stands beyond the end of a group stays, for the blocks before; only its size says that it counts no more.

    Seats change without a change of size, which then has no checkpoint: hints count them.
    """
    sizes = state.sizes.get(event.group, NOTHING)
    if not sizes or sizes[-1][1] != event.size:
        sizes = _from_now(sizes, event.meta.block, event.size)
        state = replace(state, sizes=state.sizes.set(event.group, sizes))
    if event.entry.operator == NO_ADDRESS:
        return state
    key = (event.group, event.place)
    before = state.entries.get(key, NOTHING)
    kept = before[:-1] if before and before[-1].from_block == event.entry.from_block else before
    if event.entry.from_block != event.meta.block or (kept and kept[-1].from_block > event.entry.from_block):
        _refuse("An entry is in force from the block of its own event", event)
    return replace(state, entries=state.entries.set(key, (*kept, event.entry)))


def _from_now(history: tuple[tuple[int, Any], ...], block: int, value: Any) -> tuple[tuple[int, Any], ...]:
    """A value in force from ``block`` on; what changed in the same block never counted."""
    kept = history[:-1] if history and history[-1][0] == block else history
    return (*kept, (block, value))


def _restored(event: on.Restored, state: State) -> State:
    suspension = state.suspensions.get(event.operator)
    if suspension is None:
        _refuse("The node was never suspended", event)
    return replace(state, suspensions=state.suspensions.set(event.operator, replace(suspension, restored=True)))


def _convicted(event: on.Convicted, state: State) -> State:
    before = state.convictions.get(event.operator, NOTHING)
    if event.index != len(before):
        _refuse("Convictions of a party are numbered in order", event)
    conviction = ConvictionRecord(event.fault, event.subject, event.void_from, event.void_until, event.meta)
    return replace(state, convictions=state.convictions.set(event.operator, (*before, conviction)))


# ---------------------------------------------------------------------------------------------------------- court


def case_after(
    event: on.ReviewersDrawn | on.ReviewsCommitted | on.CaseSeeded | on.CaseRestarted, case: CaseState
) -> CaseState:
    """A case's state after an event that carries it on: the state that the contract's next call takes."""
    block = event.meta.block
    match event:
        case on.ReviewersDrawn():
            drawn = replace(case, phase=CasePhase.DRAWN, phase_block=block, drawer=event.drawer)
            return replace(drawn, reviewers=event.reviewers, seats=event.seats)
        case on.ReviewsCommitted():
            committed = replace(case, phase=CasePhase.COMMITTED, phase_block=block, committer=event.committer)
            return replace(committed, commitments=event.commitments)
        case on.CaseSeeded():
            return replace(case, phase=CasePhase.SEEDED, phase_block=block, seeder=event.seeder, seed=event.seed)
        case on.CaseRestarted():
            nobody = replace(case, drawer=NO_ADDRESS, committer=NO_ADDRESS, seeder=NO_ADDRESS, seed=NO_HASH)
            anew = replace(nobody, reviewers=(), seats=b"", commitments=(), round=event.round, bond=event.bond)
            return replace(anew, phase=CasePhase.OPENED, phase_block=block)
        case _:
            assert_never(event)


def _court(event: CourtEvent, state: State) -> State:
    match event:
        case on.CaseOpened():
            return _opened(event, state)
        case on.ReviewersDrawn() | on.ReviewsCommitted() | on.CaseSeeded() | on.CaseRestarted():
            return _with_case(state, event, state=case_after(event, _case(state, event.case_id).state))
        case on.ReviewPosted():
            posts = _case(state, event.case_id).posts.set((event.round, event.reviewer), event.commitment)
            return _with_case(state, event, posts=posts)
        case on.Revealed():
            reveals = _case(state, event.case_id).reveals.set((event.round, event.party), event.reveal_hash)
            return _with_case(state, event, reveals=reveals)
        case on.CaseDecided():
            return _with_case(state, event, outcome=event.outcome)
        case on.LeafVoided():
            return replace(state, voided=state.voided.set((event.order, event.segment), event.case_id))
        case on.Pooled():
            return _pooled(event, state)
        case _:
            assert_never(event)


def _opened(event: on.CaseOpened, state: State) -> State:
    earlier = state.cases.get(event.case_id)
    if earlier is not None and earlier.live:
        _refuse("A case is opened while another over the same leaf goes on", event.case_id)
    record = CaseRecord(event.case_id, event.state, None, (event,))
    if earlier is not None:
        state = replace(state, earlier_cases=(*state.earlier_cases, earlier))
        record = replace(record, posts=earlier.posts, reveals=earlier.reveals)
    return replace(state, cases=state.cases.set(event.case_id, record))


def _case(state: State, case_id: Hash32) -> CaseRecord:
    record = state.cases.get(case_id)
    if record is None:
        _refuse("The case was never opened", case_id)
    return record


def _with_case(whole: State, event: Any, **changes: Any) -> State:
    record = _case(whole, event.case_id)
    if not record.live:
        _refuse("The case has ended", event.case_id)
    changed = replace(record, events=(*record.events, event), **changes)
    return replace(whole, cases=whole.cases.set(event.case_id, changed))


def _pooled(event: on.Pooled, state: State) -> State:
    key = (event.owner, event.execution_class)
    pool = state.pools.get(key)
    since = event.meta.block if pool is None or event.count == 1 else pool.since
    return replace(state, pools=state.pools.set(key, OutcomePool(event.count, since)))


# ------------------------------------------------------------------------------------------------- summons and log


def _summons(event: SummonsEvent, state: State) -> State:
    if isinstance(event, on.Summoned):
        record = SummonsRecord(event.state, None, (event,))
        return replace(state, summons=state.summons.set(event.summons_id, record))
    known = state.summons.get(event.summons_id)
    if known is None or known.answered is not None:
        _refuse("No such summons is open", event.summons_id)
    changed = replace(known, events=(*known.events, event))
    match event:
        case on.PassedOn():
            changed = replace(changed, state=event.state)
        case on.Responded():
            changed = replace(changed, state=event.state, responded=(*known.responded, event.node))
        case on.NodeSilent():
            changed = replace(changed, state=event.state, silent=(*known.silent, event.node))
        case on.SummonsAnswered():
            changed = replace(changed, answered=True)
        case on.SummonsUnanswered():
            changed = replace(changed, answered=False)
        case _:
            assert_never(event)
    return replace(state, summons=state.summons.set(event.summons_id, changed))


def _logged(event: on.EntryLogged, state: State) -> State:
    before = state.logs.get(event.scheduler, NOTHING)
    if event.number != len(before) + 1:
        _refuse("Log entries are numbered in order, from 1", event)
    entry = LoggedEntry(event.number, event.root, event.counts, event.data_hash, event.chain, event.meta)
    return replace(state, logs=state.logs.set(event.scheduler, (*before, entry)))
