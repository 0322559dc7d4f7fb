"""M5: claims and payments stand on a word of the payer. M12: what is overdue, and the call that ends it. M27: no money
waits in an open tab whose payee has left: nobody takes orders on it any more."""

from __future__ import annotations

from collections.abc import Iterator

from troth.audit.evidence.inputs import Unavailable, call_behind, value
from troth.audit.report import CheckResult, Finding, FindingKind
from troth.audit.subject import AuditCheck, AuditSubject, shown, unavailable
from troth.protocol import typed_data
from troth.protocol.errors import ProtocolError
from troth.protocol.market import claims
from troth.protocol.market.events import Claimed, ClaimSettled, ClaimStruck, Objected, ObjectionAnswered, TabRedeemed
from troth.protocol.market.messages import signed_by_account, tab_id
from troth.protocol.market.parts import Part
from troth.protocol.market.state import Party, State, TabRecord
from troth.protocol.market.types import Claim, PotKind, Tab, Voucher
from troth.protocol.types import Hash32

Event = Claimed | Objected | ObjectionAnswered | ClaimStruck | ClaimSettled | TabRedeemed


def _tabs(subject: AuditSubject) -> Iterator[CheckResult]:
    kinds = (Claimed, Objected, ObjectionAnswered, ClaimStruck, ClaimSettled, TabRedeemed)
    for event, before in subject.history.of(*kinds):
        yield CheckResult(event.tab, tuple(_examined(subject, event, before)))


def _examined(subject: AuditSubject, event: Event, before: State) -> Iterator[Finding]:
    if isinstance(event, Claimed):
        yield from _claimed(subject, event, before)
    elif isinstance(event, TabRedeemed):
        yield from _redeemed(subject, event, before)
    else:
        yield from _windows(subject, event, before)


def _claimed(subject: AuditSubject, event: Claimed, before: State) -> Iterator[Finding]:
    parameters, state = subject.evidence.parameters, event.state
    try:
        owed = claims.owed(state.voucher, state.claim)
    except ProtocolError as error:
        yield _wrong(event, f"The claim contradicts the voucher that it stands on: {error}")
        return
    due = event.meta.block + parameters.claim_delay
    for name, recorded, expected in (("owed", state.owed, owed), ("settlesAt", state.settles_at, due)):
        if recorded != expected:
            yield _wrong(event, f"The claim says {name} {recorded}, and it is {expected}")
    if state.owed <= before.tabs[event.tab].redeemed:
        yield _wrong(event, "The claim shows no more than was redeemed before")
    call = call_behind(subject.evidence, event.meta, Part.BANK, "claim")
    if isinstance(call, Unavailable):
        yield unavailable("M5", call, event.meta, event.tab)
        return
    tab, voucher, claim = value(call, "tab", Tab), value(call, "voucher", Voucher), value(call, "claim_", Claim)
    if (tab_id(tab), voucher, claim) != (event.tab, state.voucher, state.claim):
        yield _wrong(event, "The claim in the event is not the one in the call")
    yield from _signature(subject, event, tab, voucher, call.value("signature"))


def _redeemed(subject: AuditSubject, event: TabRedeemed, before: State) -> Iterator[Finding]:
    """The voucher behind a payment; a settled claim's payment is what the claim showed."""
    settled = subject.history.beside(event, ClaimSettled)
    if any(one.tab == event.tab and one.paid == event.paid for one in settled):
        return
    call = call_behind(subject.evidence, event.meta, Part.BANK, "redeem", "redeemMany")
    if isinstance(call, Unavailable):
        yield unavailable("M5", call, event.meta, event.tab)
        return
    if call.entry.name == "redeem":
        words = [(value(call, "tab", Tab), value(call, "voucher", Voucher), call.value("signature"))]
    else:
        tabs, vouchers = value(call, "tabs", tuple[Tab, ...]), value(call, "vouchers", tuple[Voucher, ...])
        words = list(zip(tabs, vouchers, call.value("signatures"), strict=False))
    due = {
        min(max(word[1].spent - before.tabs[event.tab].redeemed, 0), before.pot(PotKind.TAB, event.tab)): word
        for word in words
        if tab_id(word[0]) == event.tab
    }
    mine = [due[event.paid]] if event.paid in due else []
    if not mine:
        yield _wrong(event, f"{event.paid} were paid, and no voucher of the call shows that so much was due")
        return
    tab, voucher, signature = mine[0]
    yield from _signature(subject, event, tab, voucher, signature)


def _signature(
    subject: AuditSubject, event: Claimed | TabRedeemed, tab: Tab, voucher: Voucher, signature: bytes
) -> Iterator[Finding]:
    digest = typed_data.digest(voucher, subject.evidence.domain)
    if not signed_by_account(tab.key, digest, signature):
        what = "The tab's key did not sign the voucher as an account; a contract that is a key was asked on chain"
        yield Finding("M5", FindingKind.INCONCLUSIVE, what, event.tab, party=tab.key, role="tab key", place=event.meta)


def _windows(
    subject: AuditSubject, event: Objected | ObjectionAnswered | ClaimStruck | ClaimSettled, before: State
) -> Iterator[Finding]:
    claim = before.tabs[event.tab].claim
    if claim is None:
        return
    block = event.meta.block
    if isinstance(event, ClaimSettled):
        if block < claim.state.settles_at or claim.objections:
            yield _wrong(event, "A claim was settled before its time, or with open objections")
        return
    if isinstance(event, Objected):
        if event.deadline != block + subject.evidence.parameters.answer_window:
            yield _wrong(event, "An objection has another deadline than the answer window gives")
        return
    objection = claim.objections.get(event.sequence)
    if objection is None:
        yield _wrong(event, f"Nobody asked for number {event.sequence}")
    elif isinstance(event, ClaimStruck) and block <= objection.deadline:
        yield _wrong(event, "A claim was struck while its objection could be answered")
    elif isinstance(event, ObjectionAnswered) and block > objection.deadline:
        yield _wrong(event, "An objection was answered after its deadline")


def _wrong(event: Event, message: str) -> Finding:
    return Finding("M5", FindingKind.MISMATCH, message, event.tab, place=event.meta)


def _overdue(subject: AuditSubject) -> Iterator[CheckResult]:
    """What anybody may finish now: a call that nobody made is no violation, and money waits for it."""
    for subject_id, what, action in (*_overdue_money(subject), *_overdue_proceedings(subject)):
        yield CheckResult(subject_id, (Finding("M12", FindingKind.INCONCLUSIVE, what, subject_id, action=action),))


def _overdue_money(subject: AuditSubject) -> Iterator[tuple[Hash32, str, str]]:
    state, now = subject.history.state, subject.block + 1
    for tab, record in state.tabs.items():
        claim = record.claim
        late = [number for number, one in ({} if claim is None else claim.objections).items() if now > one.deadline]
        if claim is not None and late:
            what = f"Number {late[0]} of a claim was asked for and not shown in time"
            yield tab, what, f"Bank.strike(tab {shown(tab)}, claim {shown(claim.claim_id)}, {late[0]})"
        elif claim is not None and not claim.objections and now >= claim.state.settles_at:
            yield tab, "A claim stood and was not settled", f"Bank.settle(tab {shown(tab)}, {shown(claim.claim_id)})"
        elif claim is None and record.closes_at and now >= record.closes_at:
            yield tab, "A closed tab's rest was not returned", f"Bank.finishClosing(tab {shown(tab)})"
        if record.short and record.tab.key in state.parties:
            what = f"A scheduler's tab did not cover {record.short} of a settled claim"
            yield tab, what, f"Evidence.convictPayer(tab {shown(tab)})"


def _overdue_proceedings(subject: AuditSubject) -> Iterator[tuple[Hash32, str, str]]:
    state, now, parameters = subject.history.state, subject.block + 1, subject.evidence.parameters
    for summons_id, summons in state.summons.items():
        if summons.answered is None and now > summons.state.deadline:
            yield summons_id, "A summons was not answered in time", f"Summons.convict({shown(summons_id)})"
    longest = {
        1: parameters.lookahead + parameters.draw_window,
        2: parameters.commit_window,
        3: parameters.lookahead + parameters.draw_window,
        4: parameters.reveal_window,
    }
    for case, record in state.cases.items():
        late = record.live and now > record.state.phase_block + longest.get(int(record.state.phase), 0)
        if late:
            what = f"A case waits in phase {record.state.phase.name} beyond its window"
            yield case, what, f"Court.expire({shown(case)}), or Court.decide with the reveals that there are"


def _payees(subject: AuditSubject) -> Iterator[CheckResult]:
    """One result for each open tab that holds money and whose payee was ever registered; M12 follows closing ones."""
    state = subject.history.state
    for tab, record in sorted(state.tabs.items()):
        payee, balance = state.parties.get(record.tab.payee), state.pot(PotKind.TAB, tab)
        if record.known and not record.closes_at and balance and payee is not None:
            yield CheckResult(tab, tuple(_left(tab, record, payee, balance)))


def _left(tab: Hash32, record: TabRecord, payee: Party, balance: int) -> Iterator[Finding]:
    if payee.exit_block:
        # The balance stands in the evidence: it falls with each voucher that the payee still redeems.
        yield Finding(
            "M27",
            FindingKind.OBSERVED,
            "Money lies in an open tab whose payee has left",
            tab,
            party=payee.operator,
            role="payee",
            evidence=(
                ("payer", record.tab.payer),
                ("balance", str(balance)),
                ("payee was a", payee.role.name.lower()),
                ("payee's stake is free after block", str(payee.exit_block)),
            ),
            action=f"Bank.close(tab {shown(tab)}), by its payer",
        )


CHECKS = (
    AuditCheck("M5", "Vouchers and claims", _tabs),
    AuditCheck("M12", "Nothing is overdue", _overdue),
    AuditCheck("M27", "No open tab's payee has left", _payees),
)
