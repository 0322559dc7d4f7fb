"""The steps of an order, as they are journalled: each once, before what follows from it is signed or sent.

    Admitted -> Failed
    Admitted -> Answered -> Drawn -> Revealed
        -> PromisedCheck* -> HiddenTrace* -> Judged* -> Cast* -> Frozen -> UnveiledTiles*

What a step names is kept as canonical JSON. Prompts and answers are none of a step's: they are kept apart (``store``)
and removed once they are owed no more.
"""

from __future__ import annotations

from dataclasses import dataclass

from troth.protocol.hashing import keccak256
from troth.protocol.market.messages import Signed
from troth.protocol.market.signed import Admission, Draw, Inclusion, Order, Promise, Result, TraceCommitment, Verdict
from troth.protocol.market.types import Tab, Voucher
from troth.protocol.types import Address, Hash32


@dataclass(frozen=True, slots=True)
class AdmittedStep:
    """The order is taken: who serves it, and what each of them was promised."""

    order: Signed[Order]
    tab: Tab
    voucher: Signed[Voucher]
    admission: Signed[Admission]
    nodes: tuple[Address, ...]
    infer_proof: bytes
    promises: tuple[Signed[Promise], ...]
    head_salt: Hash32

    @property
    def part(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class AnsweredStep:
    """All nodes signed their results; ``rows`` of each trace."""

    reason: str
    results: tuple[Signed[Result], ...]
    rows: int
    fee: int

    @property
    def part(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class DrawnStep:
    """The draw over exactly these results, from whose block the lag runs; again with a newer block for a client that
    was away."""

    draw: Signed[Draw]
    proof: bytes
    inclusion: Signed[Inclusion]

    @property
    def part(self) -> str:
        return str(self.draw.message.block_number)


@dataclass(frozen=True, slots=True)
class FailedStep:
    """The order came to nothing, at ``block``; ``segment`` is whose node failed, the number of segments if nobody's."""

    code: str
    message: str
    remedy: str
    block: int
    segment: int

    @property
    def part(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class RevealedStep:
    """The client showed its first secret in time, here or by a summons."""

    secret: Hash32
    block: int

    @property
    def part(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class PromisedCheckStep:
    """Who checks a segment in a round: one more round for each node that a summons proved silent."""

    segment: int
    round: int
    operators: tuple[Address, ...]
    promises: tuple[Signed[Promise], ...]

    @property
    def part(self) -> str:
        return f"{self.segment}/{self.round}"


@dataclass(frozen=True, slots=True)
class HiddenTraceStep:
    """A verifier committed to its own trace."""

    verifier: Address
    commitment: Signed[TraceCommitment]

    @property
    def part(self) -> str:
        return f"{self.commitment.message.segment}/{self.verifier}"


@dataclass(frozen=True, slots=True)
class JudgedStep:
    """A verifier's verdict, at ``block``."""

    verifier: Address
    verdict: Signed[Verdict]
    block: int

    @property
    def part(self) -> str:
        return f"{self.verdict.message.segment}/{self.verifier}"


@dataclass(frozen=True, slots=True)
class CastStep:
    """A verifier of a veiled class signed its verdict as one of a ring."""

    segment: int
    ring: tuple[bytes, ...]
    verifier: Address
    signature: bytes

    @property
    def part(self) -> str:
        return f"{self.segment}/{keccak256(b''.join(self.ring)).hex()}/{self.verifier}"


@dataclass(frozen=True, slots=True)
class FrozenStep:
    """The client showed its second secret; tiles follow from what had been committed to by then (``shown``)."""

    second_secret: Hash32
    shown: tuple[Signed[TraceCommitment], ...]

    @property
    def part(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class UnveiledTilesStep:
    """What a party opened, sealed for the client; the inferencer's if ``role`` is "infer"."""

    segment: int
    role: str
    operator: Address
    sealed: bytes

    @property
    def part(self) -> str:
        return f"{self.segment}/{self.role}/{self.operator}"


OrderStep = (
    AdmittedStep
    | AnsweredStep
    | DrawnStep
    | FailedStep
    | RevealedStep
    | PromisedCheckStep
    | HiddenTraceStep
    | JudgedStep
    | CastStep
    | FrozenStep
    | UnveiledTilesStep
)


def kind_of(step: type[OrderStep]) -> str:
    """What the journal calls a step: its class without "Step"."""
    return step.__name__.removesuffix("Step")


KINDS: dict[str, type[OrderStep]] = {
    kind_of(kind): kind
    for kind in (
        AdmittedStep,
        AnsweredStep,
        DrawnStep,
        FailedStep,
        RevealedStep,
        PromisedCheckStep,
        HiddenTraceStep,
        JudgedStep,
        CastStep,
        FrozenStep,
        UnveiledTilesStep,
    )
}
