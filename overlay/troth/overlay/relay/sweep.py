"""Once a second a relay ends what has lasted too long: circuits half-open, idle or old, messages, links."""

from __future__ import annotations

from troth.overlay.cells.format import Reason
from troth.overlay.circuits.link import Link
from troth.overlay.relay.circuit import RelayCircuit
from troth.overlay.relay.limits import Limits
from troth.overlay.relay.switch import Switch

LINK_IDLE_SECONDS = 60.0
QUIET_SECONDS = 5.0
"""A draining relay ends circuits that have been quiet for so long and expect no answer."""


def sweep(switch: Switch, links: tuple[Link, ...], now: float) -> None:
    """End what has lasted too long at loop time `now`."""
    for circuit in list(switch.circuits):
        reason = overdue(circuit, switch.limits, now)
        if reason is None and switch.draining and _quiet(circuit, now):
            reason = Reason.DRAINING
        if reason is not None:
            switch.close(circuit, reason)
    switch.deliveries.expire(now)
    for link in links:
        if not switch.routes(link) and now - link.last_used > LINK_IDLE_SECONDS:
            link.close()
    switch.batch_ended()


def overdue(circuit: RelayCircuit, limits: Limits, now: float) -> Reason | None:
    """Why this circuit has to end now, or None."""
    if not circuit.proven and now - circuit.began > limits.half_open_seconds:
        return Reason.IDLE
    if now - circuit.last_used > limits.idle_seconds:
        return Reason.IDLE
    if now - circuit.began > limits.circuit_seconds:
        return Reason.QUOTA
    if circuit.proxy is not None and now - circuit.proxy.reassembly.oldest() > limits.message_seconds:
        return Reason.IDLE
    return None


def _quiet(circuit: RelayCircuit, now: float) -> bool:
    busy = circuit.extending is not None or (circuit.proxy is not None and circuit.proxy.busy)
    return not busy and now - circuit.last_used > QUIET_SECONDS
