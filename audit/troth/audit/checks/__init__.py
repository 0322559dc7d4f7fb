"""The numbered checks of the market.

Numbers and titles are the same here, in docs/how-to/auditors.md and in every output.
"""

from __future__ import annotations

from itertools import chain

from troth.audit.checks import court, disputes, faults, logs, owners, stream, tabs

CHAIN = tuple(
    sorted(
        chain.from_iterable(one.CHECKS for one in (stream, tabs, court, faults, owners, disputes)),
        key=lambda check: int(check.number.removeprefix("M")),
    )
)
"""Checks of a deployment's events."""

LOG = tuple(logs.TITLES)
"""Numbers of the checks of a scheduler's log."""

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
