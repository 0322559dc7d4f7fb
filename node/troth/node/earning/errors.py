"""Why a node does not work for what it is offered."""

from __future__ import annotations

from troth.node.errors import Refusal


class NotPaid(Refusal):
    """What pays for this work does not cover it, or too much of this scheduler's is unpaid already."""

    code = "not_paid"
