"""A deployment that comes to be, and its money: pots, tabs, claims (the factory, `Bank.sol`)."""

from __future__ import annotations

from dataclasses import dataclass

from troth.protocol.logs import LogMeta
from troth.protocol.market.types import ClaimState, Contracts, Parameters, PotKind
from troth.protocol.types import Address, Hash32


@dataclass(frozen=True, slots=True)
class Begun:
    """The factory took these parameters; parts are created one by one."""

    deployment: Hash32
    parameters: Parameters
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class PartCreated:
    """One part stands."""

    deployment: Hash32
    index: int
    part: Address
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class Deployed:
    """All parts stand; the factory says so, not one of them."""

    deployment: Hash32
    contracts: Contracts
    parameters: Parameters
    meta: LogMeta


FactoryEvent = Begun | PartCreated | Deployed


@dataclass(frozen=True, slots=True)
class Moved:
    """Money went from one pot to another; balances are those after it."""

    subject: Hash32
    from_kind: PotKind
    from_id: Hash32
    to_kind: PotKind
    to_id: Hash32
    amount: int
    from_balance: int
    to_balance: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class MovedMany:
    """Movements of one case in their order, packed (``court_money.unpack_movements``)."""

    subject: Hash32
    movements: bytes
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class Collected:
    """Money came in from outside; ``amount`` is what arrived."""

    subject: Hash32
    sender: Address
    kind: PotKind
    id: Hash32
    amount: int
    balance: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """Credit left the Bank."""

    account: Address
    payout: Address
    amount: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class TabOpened:
    """A tab is open, anew or for the first time; what was redeemed of it earlier stands."""

    tab: Hash32
    payer: Address
    payee: Address
    key: Address
    balance: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class TabToppedUp:
    """An open tab got more."""

    tab: Hash32
    amount: int
    balance: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class TabRedeemed:
    """A voucher or a settled claim was paid to the payee's credit."""

    tab: Hash32
    paid: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class TabClosing:
    """The payer closes; the rest is free from ``closes_at`` on."""

    tab: Hash32
    closes_at: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class TabClosed:
    """The rest is sent to the payer; where it cannot be paid, ``Collected`` into its credit follows."""

    tab: Hash32
    returned: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class TabForgiven:
    """The payer's stake paid the payee beside the tab, where it counts as redeemed."""

    tab: Hash32
    amount: int
    redeemed: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class Claimed:
    """The payee claims leaves that nobody acknowledged."""

    tab: Hash32
    claim_id: Hash32
    state: ClaimState
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class Objected:
    """Payer or key asks to see one leaf until ``deadline``."""

    tab: Hash32
    claim_id: Hash32
    sequence: int
    objector: Address
    deposit: int
    deadline: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class ObjectionAnswered:
    """The leaf was shown."""

    tab: Hash32
    claim_id: Hash32
    sequence: int
    amount: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class ClaimStruck:
    """The leaf was not shown in time: the whole claim is gone."""

    tab: Hash32
    claim_id: Hash32
    sequence: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class ClaimSettled:
    """A claim that stood was paid; ``short`` is what the tab did not cover."""

    tab: Hash32
    claim_id: Hash32
    owed: int
    paid: int
    short: int
    meta: LogMeta


BankEvent = (
    Moved
    | MovedMany
    | Collected
    | Withdrawn
    | TabOpened
    | TabToppedUp
    | TabRedeemed
    | TabClosing
    | TabClosed
    | TabForgiven
    | Claimed
    | Objected
    | ObjectionAnswered
    | ClaimStruck
    | ClaimSettled
)
