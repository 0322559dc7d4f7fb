"""M27: no money waits in an open tab whose payee has left: nobody takes orders on it any more."""

from __future__ import annotations

from collections.abc import Iterator

from troth.audit.report import CheckResult, Finding, FindingKind
from troth.audit.subject import AuditCheck, AuditSubject, shown
from troth.protocol.market.state import Party, TabRecord
from troth.protocol.market.types import PotKind
from troth.protocol.types import Hash32

NUMBER = "M27"


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
            NUMBER,
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


CHECKS = (AuditCheck(NUMBER, "No open tab's payee has left", _payees),)
