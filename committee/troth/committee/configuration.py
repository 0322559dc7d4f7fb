"""The member's TOML file, version 1: what it says, what it may say, and where it is wrong.

version = 1
[chain]   rpc, committee; optional chain_id
[market]  factory = "0x…"; optional bank = "0x…", start_block: whose schedulers and nodes are listed as destinations;
          without it none is
[keys]    operator (keystore file; default keys/operator.json in the folder)
[listen]  host, port; endpoint = "https://name:port" as registered
[list]    optional period, valid (seconds; the same at every member), private_addresses
[limits]  optional per_operator, per_host, per_network, relays, destinations (the same at every member);
          posts_per_second, posts_per_second_per_host
[attestation]  tdx, nvidia (true or false); milan, genoa = [bootloader, tee, snp, microcode]: the oldest firmware of
          AMD's products (the same at every member); without the table the member vouches for no machine
[reputation]  contract = "0x…"; optional start_block; client (home folder of the client that asks, default asking);
          prompts (for each node and leader), least (answers of a node that is scored), tokens (of an answer at most),
          agreeing (blocks at an epoch's end in which leaders do not ask): the same at every member;
          attempts (prompts of its own in an epoch), characters (of a prompt that it writes, at most), corpus (file
          with prompts as people type them, one a line, that nobody else has; without it the one that ships);
          without the table the member rates nobody
[tickets] contract = "0x…"; optional confirmations (blocks after which a purchase counts), poll, patience (seconds:
          between looks at the chain, and of each member before the next one proposes an epoch's keys);
          without the table the member signs no tickets
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from troth.chain.keystore import keystore_path
from troth.committee.corpus.prompts import LONGEST
from troth.committee.corpus.texts import read_corpus
from troth.committee.directory.admission import Bounds
from troth.committee.directory.schedule import Schedule
from troth.committee.errors import MemberConfigurationInvalid
from troth.committee.rating.member import RatingTerms
from troth.overlay.attestation.policy import PlatformPolicy, SnpVersion
from troth.overlay.directory.codec import LONGEST_VALIDITY, MAXIMUM_DESTINATIONS, MAXIMUM_RELAYS
from troth.protocol.market.parts import MarketPlace
from troth.protocol.reputation import ReputationPlace
from troth.protocol.types import Address
from troth.transport.strict_toml import (
    KeysSection,
    MarketSection,
    Port,
    ReputationSection,
    Seconds,
    Section,
    address_of,
    quoted,
    read_toml,
    require_https,
    require_version,
)

FILE = "committee.toml"
VERSION = 1
PERIOD, VALID = 3600, 3 * 3600

_Period = Annotated[int, msgspec.Meta(ge=1, le=LONGEST_VALIDITY)]
_Rate = Annotated[float, msgspec.Meta(gt=0, le=1e6)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=MAXIMUM_RELAYS)]
_Version = Annotated[list[Annotated[int, msgspec.Meta(ge=0, le=255)]], msgspec.Meta(min_length=4, max_length=4)]


class _MemberChainTable(Section, frozen=True, forbid_unknown_fields=True):
    rpc: str
    committee: str = ""
    chain_id: int | None = None


class _MemberListenTable(Section, frozen=True, forbid_unknown_fields=True):
    endpoint: str
    host: str = "0.0.0.0"  # noqa: S104 - clients are elsewhere
    port: Port = 8543


class _List(Section, frozen=True, forbid_unknown_fields=True):
    period: _Period = PERIOD
    valid: _Period = VALID
    private_addresses: bool = False


class _MemberLimitsTable(Section, frozen=True, forbid_unknown_fields=True):
    per_operator: _Count = 64
    per_host: _Count = 8
    per_network: _Count = 256
    relays: _Count = MAXIMUM_RELAYS
    destinations: Annotated[int, msgspec.Meta(ge=1, le=MAXIMUM_DESTINATIONS)] = MAXIMUM_DESTINATIONS
    posts_per_second: _Rate = 50.0
    posts_per_second_per_host: _Rate = 1.0


class _RatingTable(ReputationSection, frozen=True, forbid_unknown_fields=True):
    client: str = "asking"
    prompts: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4
    least: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4
    tokens: Annotated[int, msgspec.Meta(ge=16, le=4096)] = 2048
    attempts: Annotated[int, msgspec.Meta(ge=0, le=64)] = 6
    agreeing: Annotated[int, msgspec.Meta(ge=4, le=4000)] = 120
    characters: Annotated[int, msgspec.Meta(ge=100, le=LONGEST)] = LONGEST
    corpus: str = ""


class _TicketsTable(Section, frozen=True, forbid_unknown_fields=True):
    contract: str
    confirmations: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 3
    poll: Seconds = 6.0
    patience: Seconds = 60.0


@dataclass(frozen=True, slots=True)
class TicketsPlace:
    """How this member signs tickets: the contract, blocks after which a purchase counts, and its pace in seconds."""

    contract: Address
    confirmations: int
    poll: float
    patience: float


@dataclass(frozen=True, slots=True)
class RatingPlace:
    """How this member rates nodes: the contract, the home folder of the client that asks, and the terms."""

    contract: ReputationPlace
    client: Path
    least: int
    agreeing: int
    terms: RatingTerms


class _AttestationTable(Section, frozen=True, forbid_unknown_fields=True):
    tdx: bool = False
    nvidia: bool = False
    milan: _Version | None = None
    genoa: _Version | None = None

    def policy(self) -> PlatformPolicy:
        """What the table says; the roots are the vendors' whatever it says."""
        named = {"Milan": self.milan, "Genoa": self.genoa}
        oldest = {product: SnpVersion(*parts) for product, parts in named.items() if parts is not None}
        return PlatformPolicy(tdx=self.tdx, sev_snp=oldest, nvidia=self.nvidia)


class _MemberFile(Section, frozen=True, forbid_unknown_fields=True):
    version: int
    chain: _MemberChainTable
    listen: _MemberListenTable
    keys: KeysSection = KeysSection()
    list: _List = _List()
    limits: _MemberLimitsTable = _MemberLimitsTable()
    market: MarketSection | None = None
    reputation: _RatingTable | None = None
    attestation: _AttestationTable | None = None
    tickets: _TicketsTable | None = None


@dataclass(frozen=True, slots=True)
class MemberConfiguration:
    """The checked file; every path is absolute. `committee` is None until the contract is deployed."""

    folder: Path
    rpc: str
    committee: Address | None
    chain_id: int | None
    operator_keystore: Path
    host: str
    port: int
    endpoint: str
    schedule: Schedule
    private_addresses: bool
    bounds: Bounds
    posts_per_second: float
    posts_per_second_per_host: float
    market: MarketPlace | None = None
    rating: RatingPlace | None = None
    attestation: PlatformPolicy | None = None
    tickets: TicketsPlace | None = None

    @property
    def tls_folder(self) -> Path:
        """Where the TLS identity is."""
        return self.folder / "tls"

    @property
    def committee_address(self) -> Address:
        """The contract; raises MemberConfigurationInvalid while there is none."""
        if self.committee is None:
            raise MemberConfigurationInvalid(
                "chain.committee is not set",
                self.folder / FILE,
                "Deploy it (troth committee deploy) and write it there.",
            )
        return self.committee


def load(folder: Path, text: str | None = None) -> MemberConfiguration:
    """Read `committee.toml` in `folder`, or the text that it is to be; raises MemberConfigurationInvalid."""
    path = folder / FILE
    file = read_toml(path, _MemberFile, MemberConfigurationInvalid, "Run: troth committee init", text)
    require_version(path, file.version, VERSION, MemberConfigurationInvalid)
    require_https(file.listen.endpoint, MemberConfigurationInvalid)
    return _checked(folder, file)


def _checked(folder: Path, file: _MemberFile) -> MemberConfiguration:
    if file.list.valid < 2 * file.list.period:
        raise MemberConfigurationInvalid(
            "list.valid is at least twice list.period, so that one silent leader does no harm",
            file.list.valid,
            "Raise it.",
        )
    limits = file.limits
    return MemberConfiguration(
        folder=folder,
        rpc=file.chain.rpc,
        committee=_committee(file.chain.committee),
        chain_id=file.chain.chain_id,
        operator_keystore=folder / keystore_path(file.keys.operator),
        host=file.listen.host,
        port=file.listen.port,
        endpoint=file.listen.endpoint,
        schedule=Schedule(file.list.period, file.list.valid),
        private_addresses=file.list.private_addresses,
        bounds=Bounds(limits.per_operator, limits.per_host, limits.per_network, limits.relays, limits.destinations),
        posts_per_second=limits.posts_per_second,
        posts_per_second_per_host=limits.posts_per_second_per_host,
        market=None if file.market is None else file.market.place(MemberConfigurationInvalid),
        rating=None if file.reputation is None else _rating(folder, file.reputation),
        attestation=None if file.attestation is None else file.attestation.policy(),
        tickets=None if file.tickets is None else _tickets(file.tickets),
    )


def _tickets(table: _TicketsTable) -> TicketsPlace:
    contract = address_of("tickets.contract", table.contract, MemberConfigurationInvalid)
    return TicketsPlace(contract, table.confirmations, table.poll, table.patience)


def _rating(folder: Path, table: _RatingTable) -> RatingPlace:
    place, client = table.place(MemberConfigurationInvalid), folder / Path(table.client).expanduser()
    corpus = read_corpus(folder / Path(table.corpus).expanduser()) if table.corpus else None
    terms = RatingTerms(table.prompts, table.tokens, table.attempts, table.characters, corpus)
    return RatingPlace(place, client, table.least, table.agreeing, terms)


def _committee(text: str) -> Address | None:
    return address_of("chain.committee", text, MemberConfigurationInvalid) if text else None


@dataclass(frozen=True, slots=True)
class Bonding:
    """Where `init` was told that parties are bonded, as text: a market's factory and Bank."""

    factory: str = ""
    bank: str = ""
    start_block: int = 0


def template(rpc: str, committee: str, bonding: Bonding, listen: tuple[str, int], endpoint: str) -> str:
    """A new file's text from what `init` was told; addresses may be empty."""
    host, port = listen
    return (
        f"version = {VERSION}\n\n[chain]\nrpc = {quoted(rpc)}\ncommittee = {quoted(committee)}\n"
        f"{_bonding(bonding)}\n"
        f"[listen]\nhost = {quoted(host)}\nport = {port}\nendpoint = {quoted(endpoint)}\n"
    )


def _bonding(bonding: Bonding) -> str:
    if not bonding.factory:
        return ""
    bank = f"bank = {quoted(bonding.bank)}\n" if bonding.bank else ""
    return f"\n[market]\nfactory = {quoted(bonding.factory)}\n{bank}start_block = {bonding.start_block}\n"
