"""The numbered checks of the market.

Numbers and titles are the same here, in docs/how-to/auditors.md and in every output.
"""

from __future__ import annotations

from troth.audit.checks import court, disputes, faults, logs, owners, stream, tabs

CHAIN = tuple(
    sorted(
        (*stream.CHECKS, *tabs.CHECKS, *court.CHECKS, *faults.CHECKS, *owners.CHECKS, *disputes.CHECKS),
        key=lambda check: int(check.number.removeprefix("M")),
    )
)
"""Checks of a deployment's events: M1 to M12, M18, M21 and M26."""

LOG = tuple(logs.TITLES)
"""Checks of a scheduler's log: M13 to M17."""

RECEIPT = ("M19", "What a receipt proves")
HANDED = ("M20", "What evidence that was handed in allows")
NOTED = ("M22", "What verifiers noted of nodes, together")
CREDITED = ("M23", "Credits are what was served")
TICKETS_MONEY = ("M24", "Tickets' money is conserved")
TICKETS_SIGNED = ("M25", "Spent tickets are what members signed")
_TICKETS = (TICKETS_MONEY[0], TICKETS_SIGNED[0])
NUMBERS = tuple(
    sorted(
        (*(check.number for check in CHAIN), *LOG, RECEIPT[0], HANDED[0], NOTED[0], CREDITED[0], *_TICKETS),
        key=lambda number: int(number[1:]),
    )
)
