"""Errors of the node.

NodeError
 ├─ ModelError      a model folder is missing, incomplete or not the registered one
 ├─ ConfigError     node.toml cannot be used as it is
 ├─ EngineError     the engine's own process ended or cannot be started
 ├─ PeerRefusal     a request is turned down; travels to the peer as a Failure with `code`
 │   ├─ NodeBusy        memory or sessions are used up; try another node or later
 │   ├─ NotAssigned     the announcement does not give this node this work
 │   ├─ BadInput        tensors, tokens or signatures that cannot be right
 │   ├─ OutOfOrder      a message that does not follow from the ones before
 │   ├─ AlreadySigned   signing would contradict an earlier signature
 │   └─ NotAMember      a message among nodes of one model from who is none of them
 ├─ IntakeRefused   a client's request is not taken at this entry; `status` is HTTP's
 ├─ SchedulerAway   the scheduler of a client's request cannot be reached, or does not speak as one
 ├─ ProofTooDear    a transaction is put off: its gas costs more than the operator allows
 ├─ HostingRefused  a scheduler would have this node host what its operator has not agreed to
 └─ NodeStorageError  a record could not be written or read back

Every error says what happened, with which value, and what to do about it.
"""

from __future__ import annotations

from troth.protocol.errors import TrothError


class NodeError(TrothError):
    """Base of the node's errors: what happened, the offending value, what to do."""


class ModelError(NodeError):
    """A model folder is missing, incomplete or different from the registered model."""


class ConfigError(NodeError):
    """The configuration cannot be used as it is."""


class ProofTooDear(NodeError):
    """A transaction is put off, since its gas costs more now than the operator allows."""


class ProofFailed(NodeError):
    """A proof in zero knowledge was not made: its program is missing, failed, or took too long."""


class HostingRefused(NodeError):
    """A scheduler's order to host other layers goes beyond what the operator has agreed to."""


class IntakeRefused(NodeError):
    """A client's request is not taken at this entry, and nothing was sent on; `retry_after` in seconds, 0 for never."""

    def __init__(self, code: str, status: int, what: str, value: object, remedy: str, *, retry_after: int = 0) -> None:
        super().__init__(what, value, remedy)
        self.code = code
        self.status = status
        self.retry_after = retry_after


class SchedulerAway(NodeError):
    """The scheduler of a client's request cannot be reached, or its answer is none."""


class EngineError(NodeError):
    """The engine's own process ended, said something impossible or cannot be started."""


class NodeStorageError(NodeError):
    """A record of what was signed or computed could not be kept or read back."""


class PeerRefusal(NodeError):
    """A request from a peer that is turned down without changing anything."""

    code = "refused"


class NodeBusy(PeerRefusal):
    """No memory or no session left; another node or a later moment may do."""

    code = "busy"


class NotAssigned(PeerRefusal):
    """The announcement does not prove that this node has this work."""

    code = "not_assigned"


class BadInput(PeerRefusal):
    """Tensors, tokens or signatures that cannot be right."""

    code = "bad_input"


class OutOfOrder(PeerRefusal):
    """A message that does not follow from those before it."""

    code = "out_of_order"


class NotAMember(PeerRefusal):
    """The sender is in no group with this node: of another model, of a part of it, or not bonded."""

    code = "not_a_member"


class AlreadySigned(PeerRefusal):
    """Signing this would contradict what this node signed before."""

    code = "already_signed"
