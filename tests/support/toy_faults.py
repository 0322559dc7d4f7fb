"""What a toy node does wrong when it is told to, and how a verifier proves its work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from troth.protocol.market import canonical, leaves
from troth.protocol.market.signed import Opinion, Result
from troth.protocol.market.types import Rules
from troth.protocol.trace import CommittedTrace
from troth.protocol.types import Hash32


@dataclass
class Faults:
    """What a node does wrong."""

    silent: set[type] = field(default_factory=set)
    """Of such a question the channel says at once that its time is over: no test waits for it."""
    refuses: set[type] = field(default_factory=set)
    away: dict[type, int] = field(default_factory=dict)
    """How many times more nobody answers such a question, as while a node restarts."""
    dies_at_position: int | None = None
    wrong_signature_at: int | None = None
    wrong_result: dict[str, Any] = field(default_factory=dict)
    opinion: Opinion = Opinion.ACCEPT
    proof: Callable[[bytes], bytes] | None = None
    """What becomes of the traces that prove its work, beside a verdict that does not accept; None: it sends none."""
    ballot: Opinion | None = None
    """What its ballot says in place of its verdict."""
    noise: float = 0.0
    sends_rows: bool = False
    """Also where only hashes of them travel."""
    no_imprints: bool = False
    wrong_imprints: dict[str, Any] = field(default_factory=dict)


def proof_of_work(trace: CommittedTrace, salt: Hash32, judged_salt: Hash32, result: Result, rules: Rules) -> bytes:
    """What a verifier sends that computed the very rows of the node, whose trace has another salt."""
    roots = (Hash32(trace.root), Hash32(trace.root))
    own, judged = (leaves.shown(trace, one, roots, result, rules) for one in (salt, judged_salt))
    return canonical.encode(leaves.ShownTraces(own, judged))
