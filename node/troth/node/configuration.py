"""The node's TOML file, version 1: what it may say, and where it is wrong.

version = 1
[chain]   rpc; optional chain_id, poll_seconds
[market]  factory = "0x…"; optional bank = "0x…", start_block: the deployment whose orders the node serves
[earning] optional: unpaid (asset units of one scheduler's work; default 100 of the class's dearest
          orders), gas_share, claim_lags, locks (rejecting verdicts lock stake)
[court]   optional: most_bond (of a case that this node brings; default that of the longest order it
          serves, 0 for never); accuse_wei (most gas money for one proof of a wrong token; default 0.05 of the coin,
          0 for never)
[node]    class = "0x…", model = "folder or name", slice = "0:15", segments = ["0:15"]
[keys]    optional operator (keystore; default keys/operator.json in the folder)
[listen]  host, port, endpoint = "https://name:port" as registered
[engine]  optional name = "torch" or "vllm", device, threads, cache_megabytes (default 2048; what is left on a card that
          vLLM has), graphs = false (vLLM on cuda without CUDA graphs), cards (that vLLM shares a tolerant class over)
[limits]  optional sessions, positions, trace_gigabytes
[auto]    optional scheduler = "0x…", memory_gigabytes, pause_minutes: what `troth node start --auto` may do; ask =
          "PROMPT,CACHED,WRITTEN", asset units per 10^9 positions through all layers of the model
[overlay] optional: committee = "0x…", of a node that hosts the whole model only: clients' requests may enter here, on
          the port of [listen]; or on one of its own, with address = "name:port" as proxies reach it, host, port;
          publish_seconds (docs/explanation/direct.md)
[tunnel]  optional: scheduler = "0x…", which lends this node the endpoint in [listen] (docs/how-to/nat.md)
[router]  optional: by = "any", "pcp", "nat-pmp" or "upnp"; gateway = its address: a port is asked of it
[reputation] optional: contract = "0x…", start_block: whom the committee rates below its bar gets nothing forwarded
[organisations] optional: contract = "0x…", start_block: what the node serves is credited to its owner; allow = "any" or
          ["0x…"], owners whose own models `start --auto` may host here (docs/how-to/organisations.md)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Literal, cast, get_args

import msgspec

from troth.chain.keystore import keystore_path
from troth.node.earning.policy import CLAIM_LAGS, GAS_SHARE, EarningPolicy
from troth.node.errors import ConfigError
from troth.node.registration.asking import ask_of
from troth.overlay.sessions.entry_section import OverlayEntry, OverlaySection, entry_of, overlay_table
from troth.protocol.errors import ProtocolError
from troth.protocol.market.parts import MarketPlace
from troth.protocol.market.types import Ask
from troth.protocol.organisations import OrganisationsPlace
from troth.protocol.reputation import ReputationPlace
from troth.protocol.types import Address, Hash32, Segment
from troth.transport.strict_toml import (
    ChainSection,
    Hex32,
    KeysSection,
    MarketSection,
    OrganisationsSection,
    Port,
    ReputationSection,
    Section,
    address_of,
    quoted,
    read_toml,
    require_version,
)

FILE = "node.toml"
VERSION = 1

EngineName = Literal["torch", "vllm"]
RouterWay = Literal["any", "pcp", "nat-pmp", "upnp"]
_Slice = Annotated[str, msgspec.Meta(pattern=r"^\d{1,3}:\d{1,3}\Z")]
ACCUSE_WEI = 5 * 10**16
"""Gas money for one proof unless the file says otherwise: a proof takes half a million gas, two for wide models."""
USUAL_CACHE = 2 << 30


class _Earning(Section, frozen=True, forbid_unknown_fields=True):
    unpaid: Annotated[int, msgspec.Meta(ge=0)] | None = None
    gas_share: Annotated[float, msgspec.Meta(gt=0, le=1)] = GAS_SHARE
    claim_lags: Annotated[int, msgspec.Meta(ge=1, le=1000)] = CLAIM_LAGS
    locks: bool = False


class _Court(Section, frozen=True, forbid_unknown_fields=True):
    most_bond: Annotated[int, msgspec.Meta(ge=0)] | None = None
    accuse_wei: Annotated[int, msgspec.Meta(ge=0)] = ACCUSE_WEI


class _Node(Section, frozen=True, forbid_unknown_fields=True):
    class_: Hex32 = msgspec.field(name="class")
    model: str
    slice: _Slice
    segments: Annotated[tuple[_Slice, ...], msgspec.Meta(min_length=1, max_length=16)]


class _NodeListenTable(Section, frozen=True, forbid_unknown_fields=True):
    endpoint: Annotated[str, msgspec.Meta(pattern=r"^https://.+")]
    host: str = "0.0.0.0"  # noqa: S104 - schedulers are elsewhere
    port: Port = 9443


class _Engine(Section, frozen=True, forbid_unknown_fields=True):
    name: EngineName = "torch"
    device: str = "cpu"
    threads: Annotated[int, msgspec.Meta(ge=0, le=1024)] = 0
    cache_megabytes: Annotated[int, msgspec.Meta(ge=16)] | None = None
    graphs: bool = True
    cards: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1


class _NodeLimitsTable(Section, frozen=True, forbid_unknown_fields=True):
    sessions: Annotated[int, msgspec.Meta(ge=1, le=65_536)] = 256
    positions: Annotated[int, msgspec.Meta(ge=1, le=1_048_576)] = 8192
    trace_gigabytes: Annotated[float, msgspec.Meta(gt=0)] = 8.0


class _Auto(Section, frozen=True, forbid_unknown_fields=True):
    scheduler: str = ""
    memory_gigabytes: Annotated[float, msgspec.Meta(gt=0, le=65_536)] | None = None
    pause_minutes: Annotated[float, msgspec.Meta(ge=0, le=525_600)] = 10.0
    ask: str = ""


class _TunnelTable(Section, frozen=True, forbid_unknown_fields=True):
    scheduler: str


class _RouterTable(Section, frozen=True, forbid_unknown_fields=True):
    by: RouterWay = "any"
    gateway: str = ""


class _OrganisationsTable(OrganisationsSection, frozen=True, forbid_unknown_fields=True):
    allow: Literal["any"] | Annotated[tuple[str, ...], msgspec.Meta(max_length=1024)] = ()


class _NodeFile(Section, frozen=True, forbid_unknown_fields=True):
    version: int
    chain: ChainSection
    market: MarketSection
    node: _Node
    listen: _NodeListenTable
    keys: KeysSection = KeysSection()
    engine: _Engine = _Engine()
    limits: _NodeLimitsTable = _NodeLimitsTable()
    auto: _Auto = _Auto()
    overlay: OverlaySection | None = None
    tunnel: _TunnelTable | None = None
    router: _RouterTable | None = None
    earning: _Earning = _Earning()
    court: _Court = _Court()
    reputation: ReputationSection | None = None
    organisations: _OrganisationsTable | None = None


@dataclass(frozen=True, slots=True)
class HostingConsent:
    """Where credits are kept, and whose models the owner agreed to host; ``allowed`` None: everybody's."""

    place: OrganisationsPlace
    allowed: frozenset[Address] | None = frozenset()

    def allows(self, owner: Address) -> bool:
        """Whether an organisation's models may be hosted here."""
        return self.allowed is None or owner in self.allowed


@dataclass(frozen=True, slots=True)
class Auto:
    """Limits of `start --auto`: whose orders, memory for weights (None: a share of what there is), how often.

    ``ask``: for all layers of the model; a segment's is its share. None: what is asked on chain by then.
    """

    scheduler: Address | None = None
    memory_bytes: int | None = None
    pause_seconds: float = 600.0
    ask: Ask | None = None


@dataclass(frozen=True, slots=True)
class AskedRouter:
    """How the router is asked for a port, and at which address; empty: that of the default route."""

    by: RouterWay = "any"
    gateway: str = ""


@dataclass(frozen=True, slots=True)
class NodeConfiguration:
    """The checked file: paths are absolute, ids are bytes, `threads` None leaves the choice to torch."""

    folder: Path
    rpc: str
    market: MarketPlace
    chain_id: int | None
    poll_seconds: float
    execution_class: Hash32
    model: str
    slice: Segment
    segments: tuple[Segment, ...]
    operator_keystore: Path
    host: str
    port: int
    endpoint: str
    engine: EngineName
    device: str
    threads: int | None
    cache_bytes: int
    sessions: int
    positions: int
    trace_bytes: int
    auto: Auto = Auto()
    overlay: OverlayEntry | None = None
    earning: EarningPolicy = EarningPolicy()  # noqa: RUF009 -- frozen
    most_bond: int | None = None
    accuse_wei: int = ACCUSE_WEI
    tunnel: Address | None = None
    router: AskedRouter | None = None
    reputation: ReputationPlace | None = None
    organisations: HostingConsent | None = None
    graphs: bool = True
    cards: int = 1

    @property
    def own_host(self) -> str:
        """Where this machine reaches its own server."""
        return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104

    @property
    def seal_key(self) -> Path:
        """The file of the X25519 key to which clients of the overlay entry seal."""
        return self.folder / "keys" / "seal.pem"

    @property
    def tls_folder(self) -> Path:
        """Where the TLS key and certificate are."""
        return self.folder / "tls"


def load(folder: Path, text: str | None = None) -> NodeConfiguration:
    """Read node.toml in `folder`, or the text that it is going to be.

    Raises:
        ConfigError: it is missing, or a key is wrong; the message names the key.
        RawKeyRefused: a private key stands where a keystore's path belongs.
    """
    path = folder / FILE
    file = read_toml(path, _NodeFile, ConfigError, "Run `troth node init` first.", text)
    require_version(path, file.version, VERSION, ConfigError)
    return _checked(folder, file)


def _checked(folder: Path, file: _NodeFile) -> NodeConfiguration:
    hosted = segment_of(file.node.slice)
    segments = tuple(segment_of(text) for text in file.node.segments)
    for segment in segments:
        if not hosted.first <= segment.first < segment.end <= hosted.end:
            raise ConfigError("a segment lies outside of the slice", segment, f"Keep it inside {file.node.slice}.")
    tunnel = None
    if file.tunnel is not None:
        tunnel = address_of("tunnel.scheduler", file.tunnel.scheduler, ConfigError)
        if file.overlay is not None and file.overlay.address:
            remedy = "Leave address, host and port out of [overlay]: the entry shares the tunnel's port."
            raise ConfigError("a node behind a tunnel has one port", file.overlay.address, remedy)
    return NodeConfiguration(
        folder=folder,
        rpc=file.chain.rpc,
        market=file.market.place(ConfigError),
        chain_id=file.chain.chain_id,
        poll_seconds=file.chain.poll_seconds,
        execution_class=Hash32(bytes.fromhex(file.node.class_[2:])),
        model=file.node.model,
        slice=hosted,
        segments=segments,
        operator_keystore=folder / keystore_path(file.keys.operator),
        host=file.listen.host,
        port=file.listen.port,
        endpoint=file.listen.endpoint,
        engine=file.engine.name,
        device=file.engine.device,
        threads=file.engine.threads or None,
        cache_bytes=_cache_bytes(file.engine),
        sessions=file.limits.sessions,
        positions=file.limits.positions,
        trace_bytes=int(file.limits.trace_gigabytes * (1 << 30)),
        auto=_auto(file.auto),
        overlay=entry_of(file.overlay, file.listen.endpoint, ConfigError),
        earning=EarningPolicy(file.earning.unpaid, file.earning.gas_share, file.earning.claim_lags, file.earning.locks),
        most_bond=file.court.most_bond,
        accuse_wei=file.court.accuse_wei,
        tunnel=tunnel,
        router=_router(file),
        reputation=None if file.reputation is None else file.reputation.place(ConfigError),
        organisations=None if file.organisations is None else _consent(file.organisations),
        graphs=file.engine.graphs,
        cards=file.engine.cards,
    )


def _cache_bytes(engine: _Engine) -> int:
    """0 where vLLM sizes its cache by the card."""
    if engine.cache_megabytes is not None:
        return engine.cache_megabytes << 20
    return 0 if engine.name == "vllm" and engine.device.startswith("cuda") else USUAL_CACHE


def _consent(table: _OrganisationsTable) -> HostingConsent:
    place = table.place(ConfigError)
    if table.allow == "any":
        return HostingConsent(place, None)
    named = (address_of("organisations.allow", one, ConfigError) for one in table.allow)
    return HostingConsent(place, frozenset(named))


def _router(file: _NodeFile) -> AskedRouter | None:
    if file.router is None:
        return None
    if file.tunnel is not None:
        remedy = "Remove one of the two tables: a node is reached in one way."
        raise ConfigError("a node behind a tunnel needs no port of its router", "[router] and [tunnel]", remedy)
    gateway = file.router.gateway
    try:
        if gateway and not IPv4Address(gateway).is_private:
            raise ValueError(gateway)
    except ValueError as error:
        what = "router.gateway is no address of a local network"
        raise ConfigError(what, gateway[:80], "Such as 192.168.1.1; leave it out for the default route's.") from error
    return AskedRouter(file.router.by, gateway)


def _auto(section: _Auto) -> Auto:
    memory = None if section.memory_gigabytes is None else int(section.memory_gigabytes * (1 << 30))
    scheduler = address_of("auto.scheduler", section.scheduler, ConfigError) if section.scheduler else None
    return Auto(scheduler, memory, section.pause_minutes * 60, ask_of(section.ask) if section.ask else None)


def with_engine(configuration: NodeConfiguration, name: str) -> NodeConfiguration:
    """The configuration with another engine; an empty name keeps the file's. Raises ConfigError for an unknown one."""
    if not name:
        return configuration
    if name not in get_args(EngineName):
        raise ConfigError("there is no such engine", name, f"Use one of {', '.join(get_args(EngineName))}.")
    return replace(configuration, engine=cast(EngineName, name))


def segment_of(text: str) -> Segment:
    """Layers from text such as 0:15; raises ConfigError."""
    first, separator, end = text.partition(":")
    try:
        if not separator:
            raise ValueError(text)
        return Segment(int(first), int(end))
    except (ValueError, ProtocolError) as error:
        raise ConfigError("layers are written FIRST:END, with END above FIRST", text, "For example 0:15.") from error


@dataclass(frozen=True, slots=True)
class NodeInitOptions:
    """What `troth node init` was told; texts as the file has them. ``ask``: for all layers of the model, or empty."""

    rpc: str
    factory: str
    execution_class: str
    model: str
    slice: str
    segments: tuple[str, ...]
    host: str
    port: int
    endpoint: str
    device: str
    threads: int
    start_block: int
    engine: str = "torch"
    committee: str = ""
    overlay_port: int = 0
    overlay_address: str = ""
    bank: str = ""
    ask: str = ""
    tunnel: str = ""
    router: bool = False


def _deployment(choices: NodeInitOptions) -> str:
    """The rest of [chain], [market] and [earning]."""
    bank = f"bank = {quoted(choices.bank)}\n" if choices.bank else ""
    market = f"factory = {quoted(choices.factory)}\n{bank}start_block = {choices.start_block}"
    earning = f"gas_share = {GAS_SHARE}\nclaim_lags = {CLAIM_LAGS}\nlocks = false"
    return f"poll_seconds = 0.5\n\n[market]\n{market}\n\n[earning]\n{earning}"


def _asking(ask: str) -> str:
    return f"\n[auto]\nask = {quoted(ask)}   # units per 10^9 positions, for all layers of the model\n" if ask else ""


def _cache_line(choices: NodeInitOptions) -> str:
    """vLLM takes what its card has left, unless a number is written down."""
    if choices.engine == "vllm" and choices.device.startswith("cuda"):
        return "# cache_megabytes: what the card has left"
    return f"cache_megabytes = {USUAL_CACHE >> 20}"


def render(choices: NodeInitOptions) -> str:
    """A complete node.toml, the optional keys with their defaults."""
    overlay = overlay_table(choices.committee, choices.host, choices.overlay_port, choices.overlay_address)
    tunnel = f"\n[tunnel]\nscheduler = {quoted(choices.tunnel)}\n" if choices.tunnel else ""
    router = '\n[router]\nby = "any"\n' if choices.router else ""
    return f"""# A Troth node. Unknown keys are refused; see docs/how-to/operators.md.
version = {VERSION}

[chain]
rpc = {quoted(choices.rpc)}
{_deployment(choices)}

[node]
class = {quoted(choices.execution_class)}
model = {quoted(choices.model)}
slice = {quoted(choices.slice)}
segments = [{", ".join(quoted(segment) for segment in choices.segments)}]

[keys]
operator = "keys/operator.json"

[listen]
host = {quoted(choices.host)}
port = {choices.port}
endpoint = {quoted(choices.endpoint)}

[engine]
name = {quoted(choices.engine)}
device = {quoted(choices.device)}
threads = {choices.threads}   # 0: the engine decides
{_cache_line(choices)}

[limits]
sessions = 256
positions = 8192
trace_gigabytes = 8.0
{_asking(choices.ask)}{overlay}{tunnel}{router}"""
