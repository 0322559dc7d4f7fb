"""What every task of one scheduler shares."""

from __future__ import annotations

from dataclasses import dataclass, field

from troth.overlay.operator import Operator
from troth.scheduler.chains.choosing import Chains
from troth.scheduler.journal import Journal
from troth.scheduler.ledger import Ledger
from troth.scheduler.patience import Patience
from troth.scheduler.peers import Peers
from troth.scheduler.trace_store import TraceStore


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds that the steps may take.

    Args:
        generation: one answer of an inferencer.
        locking: until a client is no longer kept waiting for the opening transaction.
        verification: one verifier's whole work on one segment.
        opening: until a missing opening is given up for now, and the sample is posted without it.
    """

    generation: Patience = field(default_factory=Patience)
    locking: float = 120.0
    verification: float = 120.0
    opening: float = 30.0


@dataclass(frozen=True, slots=True)
class Desk:
    """The scheduler's keys, stores and connections. Both windows are in blocks and come from the contract.

    Without `chains`, candidates are chosen by what their channels have shown.
    """

    scheduler: Operator
    vrf_secret: bytes
    vrf_key: tuple[int, int]
    commit_window: int
    reveal_window: int
    journal: Journal
    traces: TraceStore
    peers: Peers
    ledger: Ledger
    waits: Waits
    chains: Chains | None = None
