"""The scheduler's TOML file for a market, version 1.

version = 1
[chain]    rpc; optional chain_id, poll_seconds
[market]   factory = "0x…"; optional bank = "0x…", start_block
[keys]     operator, vrf (keystore files; default keys/operator.json and keys/vrf.json in the folder)
[listen]   host, port; endpoint = "https://name:port" as registered
[[serve]]  class = "0x…", model = "folder"; ends = [15, 30], or placement = "auto"; optional context
[prices]   prompt, cached, written (asset's smallest unit per 10^9 positions, as text); optional node_share;
           [prices.classes."0x…"] the same for one class alone
[tabs]     deposit, least (the asset's smallest unit, as text): what a tab with a node starts with, and is topped up
           by once less is free; optional redeem_times: how many times its gas a voucher is worth redeeming
[limits]   optional concurrent, settled_blocks: how many blocks follow the one that an order names (4)
[waits]    optional token, slow, prefill, check (seconds); absent: how long a check waits for a verifier that is away
[log]      optional seconds, orders: after how long, or how many orders, an entry is posted
[overlay]  committee: to be reached through the overlay, on the port of [listen]; with address (host, port) on another
[tunnels]  first_port, ports; optional host: endpoints for nodes that nobody can connect to (docs/how-to/nat.md)
[reputation] contract = "0x…"; optional start_block: whom the committee rates below its bar gets no order
[organisations] contract = "0x…"; optional start_block: prices say which organisation brought a class
[suspicion] file = "…": what `troth audit notes --suspects` wrote; prices then advise more checks
[tickets]  contract = "0x…"; optional fee (the asset's smallest unit, as text): what of each ticket pays for the
           transaction that takes it (docs/how-to/tickets.md)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from troth.chain.keystore import keystore_path
from troth.overlay.sessions.entry_section import OverlayEntry, OverlaySection, entry_of
from troth.protocol.market.checks import MOST_SETTLED_BLOCKS
from troth.protocol.market.parts import MarketPlace
from troth.protocol.organisations import OrganisationsPlace
from troth.protocol.reputation import ReputationPlace
from troth.protocol.types import Hash32
from troth.scheduler.errors import ConfigurationInvalid
from troth.scheduler.log.entries import ENTRY_ORDERS, ENTRY_SECONDS
from troth.scheduler.nodes.patience import GenerationPatience
from troth.scheduler.orders.context import Waits
from troth.scheduler.orders.offers import PriceList
from troth.scheduler.sections import (
    FILE,
    VERSION,
    ListenSection,
    SchedulerKeysSection,
    Serve,
    TunnelPorts,
    TunnelsSection,
    lent_ports,
    served_of,
)
from troth.scheduler.served import ServedClass
from troth.scheduler.tabs.opening import Deposits
from troth.scheduler.tabs.tickets import TicketTerms
from troth.transport.strict_toml import (
    ChainSection,
    Hex32,
    MarketSection,
    OrganisationsSection,
    ReputationSection,
    Seconds,
    Section,
    address_of,
    read_toml,
    require_https,
    require_version,
)

SETTLED_BLOCKS = 4
"""Deeper reorganisations are rare. With fewer a common one convicts this scheduler for honest admissions; with more,
nodes that join serve later, and those that leave are drawn for longer."""

_Amount = Annotated[str, msgspec.Meta(pattern=r"^(0|[1-9][0-9]{0,28})\Z")]
_Price = Annotated[str, msgspec.Meta(pattern=r"^(0|[1-9][0-9]{0,18})\Z")]


class _Prices(Section, frozen=True, forbid_unknown_fields=True):
    prompt: _Price
    cached: _Price
    written: _Price
    node_share: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 8_000


class _AllPrices(_Prices, frozen=True, forbid_unknown_fields=True):
    classes: dict[Hex32, _Prices] = msgspec.field(default_factory=dict)


class _Tabs(Section, frozen=True, forbid_unknown_fields=True):
    deposit: _Amount
    least: _Amount
    redeem_times: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 20


class _SchedulerLimitsTable(Section, frozen=True, forbid_unknown_fields=True):
    concurrent: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 256
    settled_blocks: Annotated[int, msgspec.Meta(ge=0, le=MOST_SETTLED_BLOCKS)] = SETTLED_BLOCKS


class _SchedulerWaitsTable(Section, frozen=True, forbid_unknown_fields=True):
    token: Seconds = 10.0
    slow: Seconds = 50.0
    prefill: Seconds = 60.0
    check: Seconds = 120.0
    absent: Seconds = 20.0


class _Log(Section, frozen=True, forbid_unknown_fields=True):
    seconds: Seconds = ENTRY_SECONDS
    orders: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = ENTRY_ORDERS


class _Tickets(Section, frozen=True, forbid_unknown_fields=True):
    contract: str
    fee: _Amount = "0"


class _Suspicion(Section, frozen=True, forbid_unknown_fields=True):
    file: str


class _SchedulerFile(Section, frozen=True, forbid_unknown_fields=True):
    version: int
    chain: ChainSection
    market: MarketSection
    listen: ListenSection
    prices: _AllPrices
    tabs: _Tabs
    keys: SchedulerKeysSection = SchedulerKeysSection()
    serve: tuple[Serve, ...] = ()
    limits: _SchedulerLimitsTable = _SchedulerLimitsTable()
    waits: _SchedulerWaitsTable = _SchedulerWaitsTable()
    log: _Log = _Log()
    overlay: OverlaySection | None = None
    tunnels: TunnelsSection | None = None
    reputation: ReputationSection | None = None
    organisations: OrganisationsSection | None = None
    tickets: _Tickets | None = None
    suspicion: _Suspicion | None = None


@dataclass(frozen=True, slots=True)
class SchedulerConfiguration:
    """The checked file; every path is absolute, every id is bytes."""

    folder: Path
    rpc: str
    chain_id: int | None
    poll_seconds: float
    market: MarketPlace
    operator_keystore: Path
    vrf_keystore: Path
    host: str
    port: int
    endpoint: str
    served: tuple[ServedClass, ...]
    prices: Mapping[Hash32, PriceList]
    deposits: Deposits
    redeem_times: int
    concurrent: int
    waits: Waits
    overlay: OverlayEntry | None = None
    tunnels: TunnelPorts | None = None
    log_seconds: float = ENTRY_SECONDS
    log_orders: int = ENTRY_ORDERS
    reputation: ReputationPlace | None = None
    organisations: OrganisationsPlace | None = None
    tickets: TicketTerms | None = None
    suspects: Path | None = None
    settled_blocks: int = 0

    @property
    def seal_key(self) -> Path:
        """The file of the X25519 key to which clients seal."""
        return self.folder / "keys" / "seal.pem"


def load_market(folder: Path, text: str | None = None) -> SchedulerConfiguration:
    """Read ``scheduler.toml`` in ``folder``, or the text that it is to be; raises ConfigurationInvalid."""
    path = folder / FILE
    file = read_toml(path, _SchedulerFile, ConfigurationInvalid, "Run: troth scheduler init", text)
    require_version(path, file.version, VERSION, ConfigurationInvalid)
    require_https(file.listen.endpoint, ConfigurationInvalid)
    return _checked(folder, file)


def _checked(folder: Path, file: _SchedulerFile) -> SchedulerConfiguration:
    served = tuple(served_of(folder, entry) for entry in file.serve)
    waits = file.waits
    return SchedulerConfiguration(
        folder=folder,
        rpc=file.chain.rpc,
        chain_id=file.chain.chain_id,
        poll_seconds=file.chain.poll_seconds,
        market=file.market.place(ConfigurationInvalid),
        operator_keystore=folder / keystore_path(file.keys.operator),
        vrf_keystore=folder / keystore_path(file.keys.vrf),
        host=file.listen.host,
        port=file.listen.port,
        endpoint=file.listen.endpoint,
        served=served,
        prices=_listed(served, file.prices),
        deposits=_deposits(file.tabs),
        redeem_times=file.tabs.redeem_times,
        concurrent=file.limits.concurrent,
        waits=Waits(GenerationPatience(waits.token, waits.prefill, waits.slow), waits.check, waits.absent),
        overlay=entry_of(file.overlay, file.listen.endpoint, ConfigurationInvalid),
        tunnels=None if file.tunnels is None else lent_ports(file.tunnels, file.listen),
        log_seconds=file.log.seconds,
        log_orders=file.log.orders,
        reputation=None if file.reputation is None else file.reputation.place(ConfigurationInvalid),
        organisations=None if file.organisations is None else file.organisations.place(ConfigurationInvalid),
        tickets=None if file.tickets is None else _ticket_terms(file.tickets),
        settled_blocks=file.limits.settled_blocks,
        suspects=None if file.suspicion is None else folder / Path(file.suspicion.file).expanduser(),
    )


def _ticket_terms(table: _Tickets) -> TicketTerms:
    return TicketTerms(address_of("tickets.contract", table.contract, ConfigurationInvalid), int(table.fee))


def _listed(served: tuple[ServedClass, ...], prices: _AllPrices) -> dict[Hash32, PriceList]:
    own = {bytes.fromhex(class_id[2:]): listed for class_id, listed in prices.classes.items()}
    unknown = own.keys() - {entry.class_id for entry in served}
    if unknown:
        what = "[prices.classes] names a class that is not served"
        raise ConfigurationInvalid(what, "0x" + min(unknown).hex(), "Serve it, or remove its prices.")
    return {entry.class_id: _price_list(own.get(entry.class_id, prices)) for entry in served}


def _price_list(prices: _Prices) -> PriceList:
    return PriceList(int(prices.prompt), int(prices.cached), int(prices.written), prices.node_share)


def _deposits(tabs: _Tabs) -> Deposits:
    deposit, least = int(tabs.deposit), int(tabs.least)
    if not 0 < least <= deposit:
        what = "tabs.least is above zero and at most tabs.deposit"
        raise ConfigurationInvalid(what, f"{least} and {deposit}", "A tab is topped up by the deposit.")
    return Deposits(deposit, least)
