"""A member's part in the keys of tickets: what it deals, what it holds of others, what it signs, and its shares.

All of it is in one SQLite file before anything leaves: a member that is killed deals the same polynomials again, and
its signatures of tickets follow from its shares alone. Epochs whose tickets cannot be spent any more are erased, so
that who takes a member's disk later can sign nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from troth.committee.errors import TicketsRefused
from troth.committee.store import open_records
from troth.protocol import typed_data
from troth.protocol.committee import threshold
from troth.protocol.errors import ProtocolError
from troth.protocol.struct_kinds import prepared
from troth.protocol.tickets import messages
from troth.protocol.tickets.curve import InvalidTicket
from troth.protocol.tickets.dealing import (
    EpochKeys,
    KeyDealing,
    deal,
    draw_polynomials,
    keys_of,
    numbered,
    require_dealing,
    require_shares,
    share_of,
    shares_for,
)
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, Hash32, to_address

Made = TypeVar("Made")

FORMAT = 1
SCALAR_BYTES = 32
_SCHEMA = """
CREATE TABLE IF NOT EXISTS dealt (epoch INTEGER PRIMARY KEY, operators BLOB NOT NULL, polynomials BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS held (
    epoch INTEGER, dealer TEXT, body BLOB NOT NULL, PRIMARY KEY (epoch, dealer)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS signed (
    epoch INTEGER, keys BLOB, dealers BLOB NOT NULL, PRIMARY KEY (epoch, keys)
) WITHOUT ROWID;
"""


class DealtShares(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A dealing and what it gives to one member, as it travels between them."""

    epoch: Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
    dealer: str
    operators: Annotated[list[str], msgspec.Meta(min_length=1, max_length=32)]
    commitments: Annotated[list[list[bytes]], msgspec.Meta(min_length=1, max_length=16)]
    shares: Annotated[list[bytes], msgspec.Meta(min_length=1, max_length=16)]

    @property
    def dealing(self) -> KeyDealing:
        """The part that everybody is told; raises InvalidField where an address is none."""
        operators = tuple(to_address(one) for one in self.operators)
        return KeyDealing(self.epoch, to_address(self.dealer), operators, tuple(map(tuple, self.commitments)))

    @property
    def values(self) -> tuple[int, ...]:
        """The member's share of each denomination."""
        return tuple(int.from_bytes(one, "big") for one in self.shares)


class KeyProposal(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The dealers whose dealings make an epoch's keys, and the digests of these."""

    epoch: Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
    dealers: Annotated[list[tuple[str, bytes]], msgspec.Meta(min_length=1, max_length=32)]


class TicketKeyStore:
    """One member's file; SQLite puts calls of several threads one after the other."""

    def __init__(self, path: Path) -> None:
        self._database = open_records(path, "The keys of tickets", FORMAT, _SCHEMA)
        self._database.execute("PRAGMA secure_delete = ON")

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def dealt(self, epoch: int) -> tuple[list[str], list[list[bytes]]] | None:
        """To whom this member deals in an epoch, and its polynomials."""
        row = self._database.execute("SELECT operators, polynomials FROM dealt WHERE epoch = ?", (epoch,)).fetchone()
        return None if row is None else (_unpacked(row[0], list[str]), _unpacked(row[1], list[list[bytes]]))

    def keep_dealt(self, epoch: int, operators: Sequence[str], polynomials: Sequence[Sequence[bytes]]) -> None:
        """Before a value of these leaves; the first that were kept stay."""
        values = epoch, msgspec.msgpack.encode(list(operators)), msgspec.msgpack.encode(polynomials)
        self._database.execute("INSERT OR IGNORE INTO dealt VALUES (?, ?, ?)", values)

    def hold(self, given: DealtShares) -> None:
        """Keep what a dealer gave; the first word of an epoch stays."""
        values = given.epoch, given.dealer, msgspec.msgpack.encode(given)
        self._database.execute("INSERT OR IGNORE INTO held VALUES (?, ?, ?)", values)

    def held(self, epoch: int) -> dict[Address, DealtShares]:
        """What dealers of an epoch gave."""
        rows = self._database.execute("SELECT dealer, body FROM held WHERE epoch = ?", (epoch,)).fetchall()
        return {Address(dealer): _unpacked(body, DealtShares) for dealer, body in rows}

    def keep_dealers(self, proposal: KeyProposal, keys: Hash32) -> None:
        """Of which dealers these keys are made; before this member's signature under them leaves."""
        values = proposal.epoch, keys, msgspec.msgpack.encode(proposal)
        self._database.execute("INSERT OR IGNORE INTO signed VALUES (?, ?, ?)", values)

    def dealers(self, epoch: int, keys: Hash32) -> KeyProposal | None:
        """The dealers that make these keys, where this member signed or adopted them."""
        query = "SELECT dealers FROM signed WHERE epoch = ? AND keys = ?"
        row = self._database.execute(query, (epoch, keys)).fetchone()
        return None if row is None else _unpacked(row[0], KeyProposal)

    def forget_before(self, epoch: int) -> None:
        """Erase older epochs, from the write-ahead log too."""
        for table in ("dealt", "held", "signed"):
            self._database.execute(f"DELETE FROM {table} WHERE epoch < ?", (epoch,))  # noqa: S608 - three names
        self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _unpacked(data: bytes, kind: type[Made]) -> Made:
    """Of our own file: it was checked when it was written."""
    return msgspec.msgpack.decode(data, type=prepared(kind))


@dataclass(frozen=True, slots=True)
class MemberShare:
    """An epoch's keys and this member's share of each."""

    keys: EpochKeys
    shares: tuple[int, ...]


class TicketKeyMember:
    """One member's rules; whatever it is asked for again it answers in the same way.

    Args:
        domain: of the Tickets contract.
        denominations: how many prices tickets have.
    """

    def __init__(self, secret: bytes, domain: Domain, denominations: int, store: TicketKeyStore) -> None:
        self._secret = secret
        self.operator = typed_data.address_of(secret)
        self.domain = domain
        self._denominations = denominations
        self._store = store
        self._ready: dict[int, MemberShare] = {}
        self._askers: dict[int, set[Address]] = {}

    # ---- dealing

    def deal(self, epoch: int, members: Sequence[Address]) -> dict[Address, DealtShares]:
        """What this member deals in an epoch, to each member; the same every time."""
        if self._store.dealt(epoch) is None:
            drawn = draw_polynomials(self._denominations, threshold(len(members)))
            encoded = [[one.to_bytes(SCALAR_BYTES, "big") for one in polynomial] for polynomial in drawn]
            self._store.keep_dealt(epoch, numbered(members), encoded)
        kept = self._store.dealt(epoch)
        assert kept is not None
        operators = [Address(one) for one in kept[0]]
        polynomials = [tuple(int.from_bytes(one, "big") for one in polynomial) for polynomial in kept[1]]
        dealing = deal(epoch, self.operator, operators, polynomials)
        commitments = [list(one) for one in dealing.commitments]
        given = {}
        for number, operator in enumerate(operators, 1):
            shares = [one.to_bytes(SCALAR_BYTES, "big") for one in shares_for(polynomials, number)]
            given[operator] = DealtShares(epoch, self.operator, list(operators), commitments, shares)
        return given

    def take(self, sender: Address, given: DealtShares, members: Sequence[Address]) -> None:
        """Hold what a dealer gave this member; raises TicketsRefused where it is not what it committed to."""
        try:
            dealing = given.dealing
            # Letter by letter: under another spelling of its address a dealer would hold a second dealing.
            if given.dealer != sender:
                raise TicketsRefused("A member deals for itself", given.dealer, "Sign with the dealer's key.")
            if dealing.operators != numbered(members):
                what = "The dealing is to other members than there are"
                raise TicketsRefused(what, len(dealing.operators), "Wait for the next epoch's dealing.")
            if self.operator not in dealing.operators:
                raise TicketsRefused("This operator is no member any more", self.operator, "Deal to members alone.")
            require_dealing(dealing, denominations=self._denominations, threshold=threshold(len(members)))
            require_shares(dealing, dealing.operators.index(self.operator) + 1, given.values)
        except ProtocolError as error:
            raise TicketsRefused(error.what, error.value, error.remedy) from error
        self._store.hold(given)
        kept = self._store.held(given.epoch)[sender].dealing
        if kept.digest != dealing.digest:
            raise TicketsRefused("This dealer gave another dealing before", sender, "Deal the same again.")

    def holdings(self, epoch: int) -> dict[Address, Hash32]:
        """Which dealings of an epoch this member holds good shares of."""
        return {dealer: given.dealing.digest for dealer, given in self._store.held(epoch).items()}

    def asked_by(self, epoch: int, operator: Address) -> None:
        """A member has no share of an epoch's keys: it may lack this member's dealing."""
        self._askers.setdefault(epoch, set()).add(operator)

    def take_askers(self, epoch: int) -> set[Address]:
        """Who asked since this was called last."""
        return self._askers.pop(epoch, set())

    # ---- keys

    def propose(self, epoch: int, holdings: Mapping[Address, Mapping[Address, Hash32]], needed: int) -> KeyProposal:
        """Dealers that enough members hold; raises TicketsRefused while there are too few.

        Args:
            holdings: of each member that answered, this one among them.
        """
        # Only what this member holds, too: whoever boasts of other dealings gains nothing by it.
        mine = set(holdings[self.operator].items())
        held = {member: mine & set(theirs.items()) for member, theirs in holdings.items()}
        while len(held) >= needed:
            common = set.intersection(*held.values())
            if len(common) >= needed:
                return KeyProposal(epoch, sorted((dealer, bytes(digest)) for dealer, digest in common))
            held.pop(min(held, key=lambda member: (len(held[member]), member)))
        raise TicketsRefused("Too few members hold the same dealings", len(holdings), "Wait for the others.")

    def sign(self, proposal: KeyProposal, needed: int) -> tuple[EpochKeys, bytes]:
        """The keys that a proposal makes, and this member's signature; raises TicketsRefused for others."""
        if len({dealer for dealer, _ in proposal.dealers}) < needed:
            raise TicketsRefused(f"Keys are made of {needed} dealings or more", len(proposal.dealers), "Wait.")
        keys = self._keys_held(proposal)
        self._store.keep_dealers(proposal, keys.digest)
        return keys, typed_data.sign(messages.keys_message(keys), self.domain, self._secret)

    def dealers(self, epoch: int, digest: Hash32) -> KeyProposal | None:
        """The dealers that make the keys that the chain names by ``digest``; None where this member has no share."""
        return self._store.dealers(epoch, digest)

    def adopt(self, proposal: KeyProposal, digest: Hash32) -> None:
        """Take a share of keys that others registered; raises TicketsRefused where these dealers make other keys.

        Whoever names the dealers need not be believed: the chain names the keys, and each dealing was checked.
        """
        keys = self._keys_held(proposal)
        if keys.digest != digest:
            what = "These dealers make other keys than the chain names"
            raise TicketsRefused(what, keys.digest, "Name those that made the epoch's keys.")
        self._store.keep_dealers(proposal, digest)

    def is_signed_by(self, proposal: KeyProposal, signature: bytes, operator: Address) -> bool:
        """Whether a member signed the keys that a proposal makes."""
        keys = self._keys(proposal, self._store.held(proposal.epoch))
        try:
            return typed_data.recover(messages.keys_message(keys), self.domain, signature) == operator
        except ProtocolError:
            return False

    def share(self, epoch: int, digest: Hash32) -> MemberShare | None:
        """This member's shares of the keys that the chain names by ``digest``; None where it has none."""
        ready = self._ready.get(epoch)
        # A reorganisation may bring other keys of the same epoch.
        if ready is None or ready.keys.digest != digest:
            proposal = self._store.dealers(epoch, digest)
            if proposal is None:
                return None
            held = self._store.held(epoch)
            mine = share_of(held[Address(dealer)].values for dealer, _ in proposal.dealers)
            ready = self._ready[epoch] = MemberShare(self._keys(proposal, held), mine)
        return ready

    def forget_before(self, epoch: int) -> None:
        """Erase the shares of older epochs."""
        self._ready = {one: share for one, share in self._ready.items() if one >= epoch}
        self._askers = {one: askers for one, askers in self._askers.items() if one >= epoch}
        self._store.forget_before(epoch)

    def _keys_held(self, proposal: KeyProposal) -> EpochKeys:
        """The keys that a proposal makes; raises TicketsRefused where this member lacks one of its dealings."""
        held = self._store.held(proposal.epoch)
        for dealer, digest in proposal.dealers:
            mine = held.get(Address(dealer))
            if mine is None or mine.dealing.digest != digest:
                raise TicketsRefused("This member holds no such dealing", dealer, "Propose dealers that all hold.")
        return self._keys(proposal, held)

    def _keys(self, proposal: KeyProposal, held: Mapping[Address, DealtShares]) -> EpochKeys:
        try:
            return keys_of([held[Address(dealer)].dealing for dealer, _ in sorted(proposal.dealers)])
        except InvalidTicket as error:
            raise TicketsRefused(error.what, error.value, error.remedy) from error


def decode_body(data: bytes, kind: type[Made]) -> Made:
    """A member's message; raises TicketsRefused."""
    try:
        return msgspec.msgpack.decode(data, type=prepared(kind))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TicketsRefused("The bytes are no message about tickets", str(error), "Send what this asks.") from error
