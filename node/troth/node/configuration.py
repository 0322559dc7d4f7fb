"""The node's TOML file, version 1: what it may say, and where it is wrong.

version = 1
[chain]   rpc; optional chain_id, poll_seconds
[market]  factory = "0x…"; optional bank = "0x…", start_block: the deployment whose orders the node serves
[earning] optional: unpaid (asset units of one scheduler's work; default 100 of the class's dearest
          orders), gas_share, claim_lags, locks (rejecting verdicts lock stake)
[court]   optional: most_bond (of a case that this node brings; default that of the longest order it
          serves, 0 for never)
[node]    class = "0x…", model = "folder or name", slice = "0:15", segments = ["0:15"]
[keys]    optional operator (keystore; default keys/operator.json in the folder)
[listen]  host, port, endpoint = "https://name:port" as registered
[engine]  optional name = "torch" or "vllm", device, threads, cache_megabytes
[limits]  optional sessions, positions, trace_gigabytes
[auto]    optional scheduler = "0x…", memory_gigabytes, pause_minutes: what `troth node start --auto` may do; ask =
          "PROMPT,CACHED,WRITTEN", asset units per 10^9 positions through all layers of the model
[overlay] optional: address = "name:port" as proxies reach it, committee = "0x…"; host, port, publish_seconds;
          of a node that hosts the whole model only: clients' requests may enter here (docs/explanation/direct.md)
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, cast, get_args

import msgspec

from troth.chain.keystore import keystore_path
from troth.node.asking import ask_of
from troth.node.earning.policy import CLAIM_LAGS, GAS_SHARE, EarningPolicy
from troth.node.errors import ConfigError
from troth.overlay.sessions.entry_section import OverlayEntry, OverlaySection, entry_of, overlay_table
from troth.protocol.errors import ProtocolError
from troth.protocol.market.types import Ask
from troth.protocol.types import Address, Hash32, Segment, to_address
from troth.transport.errors import EntryMisconfigured

FILE = "node.toml"
VERSION = 1

EngineName = Literal["torch", "vllm"]
_Slice = Annotated[str, msgspec.Meta(pattern=r"^\d{1,3}:\d{1,3}$")]
_Positive = Annotated[float, msgspec.Meta(gt=0, le=86_400)]


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file; an unknown key is an error, since a misspelt limit would silently not hold."""


class _Chain(_Section, frozen=True, forbid_unknown_fields=True):
    rpc: str
    chain_id: int | None = None
    poll_seconds: _Positive = 0.5


class _Market(_Section, frozen=True, forbid_unknown_fields=True):
    factory: str
    bank: str = ""
    start_block: Annotated[int, msgspec.Meta(ge=0)] = 0


class _Earning(_Section, frozen=True, forbid_unknown_fields=True):
    unpaid: Annotated[int, msgspec.Meta(ge=0)] | None = None
    gas_share: Annotated[float, msgspec.Meta(gt=0, le=1)] = GAS_SHARE
    claim_lags: Annotated[int, msgspec.Meta(ge=1, le=1000)] = CLAIM_LAGS
    locks: bool = False


class _Court(_Section, frozen=True, forbid_unknown_fields=True):
    most_bond: Annotated[int, msgspec.Meta(ge=0)] | None = None


class _Node(_Section, frozen=True, forbid_unknown_fields=True):
    class_: Annotated[str, msgspec.Meta(pattern="^0x[0-9a-fA-F]{64}$")] = msgspec.field(name="class")
    model: str
    slice: _Slice
    segments: Annotated[tuple[_Slice, ...], msgspec.Meta(min_length=1, max_length=16)]


class _Keys(_Section, frozen=True, forbid_unknown_fields=True):
    operator: str = "keys/operator.json"


class _Listen(_Section, frozen=True, forbid_unknown_fields=True):
    endpoint: Annotated[str, msgspec.Meta(pattern=r"^https://.+")]
    host: str = "0.0.0.0"  # noqa: S104 - schedulers are elsewhere
    port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 9443


class _Engine(_Section, frozen=True, forbid_unknown_fields=True):
    name: EngineName = "torch"
    device: str = "cpu"
    threads: Annotated[int, msgspec.Meta(ge=0, le=1024)] = 0
    cache_megabytes: Annotated[int, msgspec.Meta(ge=16)] = 2048


class _Limits(_Section, frozen=True, forbid_unknown_fields=True):
    sessions: Annotated[int, msgspec.Meta(ge=1, le=65_536)] = 256
    positions: Annotated[int, msgspec.Meta(ge=1, le=1_048_576)] = 8192
    trace_gigabytes: Annotated[float, msgspec.Meta(gt=0)] = 8.0


class _Auto(_Section, frozen=True, forbid_unknown_fields=True):
    scheduler: str = ""
    memory_gigabytes: Annotated[float, msgspec.Meta(gt=0, le=65_536)] | None = None
    pause_minutes: Annotated[float, msgspec.Meta(ge=0, le=525_600)] = 10.0
    ask: str = ""


class _File(_Section, frozen=True, forbid_unknown_fields=True):
    version: int
    chain: _Chain
    market: _Market
    node: _Node
    listen: _Listen
    keys: _Keys = _Keys()
    engine: _Engine = _Engine()
    limits: _Limits = _Limits()
    auto: _Auto = _Auto()
    overlay: OverlaySection | None = None
    earning: _Earning = _Earning()
    court: _Court = _Court()


@dataclass(frozen=True, slots=True)
class MarketPlace:
    """Which deployment a node serves: its factory, its Bank where the factory made several, where to begin to look."""

    factory: Address
    bank: Address | None = None
    start_block: int = 0


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
class Configuration:
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

    @property
    def seal_key(self) -> Path:
        """The file of the X25519 key to which clients of the overlay entry seal."""
        return self.folder / "keys" / "seal.pem"

    @property
    def tls_folder(self) -> Path:
        """Where the TLS key and certificate are."""
        return self.folder / "tls"


def load(folder: Path) -> Configuration:
    """Read node.toml in `folder`.

    Raises:
        ConfigError: it is missing, or a key is wrong; the message names the key.
        RawKeyRefused: a private key stands where a keystore's path belongs.
    """
    path = folder / FILE
    try:
        file = msgspec.toml.decode(path.read_bytes(), type=_File)
    except OSError as error:
        raise ConfigError("there is no configuration", str(path), "Run `troth node init` first.") from error
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path} cannot be used", str(error), "Correct the key that is named.") from error
    if file.version != VERSION:
        raise ConfigError(f"{path} has another version", file.version, f"This program reads version {VERSION}.")
    return _checked(folder, file)


def _checked(folder: Path, file: _File) -> Configuration:
    hosted = segment_of(file.node.slice)
    segments = tuple(segment_of(text) for text in file.node.segments)
    for segment in segments:
        if not hosted.first <= segment.first < segment.end <= hosted.end:
            raise ConfigError("a segment lies outside of the slice", segment, f"Keep it inside {file.node.slice}.")
    return Configuration(
        folder=folder,
        rpc=file.chain.rpc,
        market=_market(file.market),
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
        cache_bytes=file.engine.cache_megabytes << 20,
        sessions=file.limits.sessions,
        positions=file.limits.positions,
        trace_bytes=int(file.limits.trace_gigabytes * (1 << 30)),
        auto=_auto(file.auto),
        overlay=_overlay(file.overlay),
        earning=EarningPolicy(file.earning.unpaid, file.earning.gas_share, file.earning.claim_lags, file.earning.locks),
        most_bond=file.court.most_bond,
    )


def _market(section: _Market) -> MarketPlace:
    bank = _address("market.bank", section.bank) if section.bank else None
    return MarketPlace(_address("market.factory", section.factory), bank, section.start_block)


def _address(key: str, text: str) -> Address:
    try:
        return to_address(text)
    except ProtocolError as error:
        raise ConfigError(f"{key} is no address", text, error.remedy) from error


def _overlay(section: OverlaySection | None) -> OverlayEntry | None:
    try:
        return entry_of(section)
    except EntryMisconfigured as error:
        raise ConfigError(error.what, error.value, error.remedy) from error


def _auto(section: _Auto) -> Auto:
    memory = None if section.memory_gigabytes is None else int(section.memory_gigabytes * (1 << 30))
    try:
        scheduler = to_address(section.scheduler) if section.scheduler else None
    except ProtocolError as error:
        raise ConfigError("auto.scheduler is no address", section.scheduler, error.remedy) from error
    return Auto(scheduler, memory, section.pause_minutes * 60, ask_of(section.ask) if section.ask else None)


def with_engine(configuration: Configuration, name: str) -> Configuration:
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
class Choices:
    """What `troth node init` was told; texts as the file has them."""

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
    overlay_port: int = 9444
    overlay_address: str = ""
    bank: str = ""


def _deployment(choices: Choices) -> str:
    """The rest of [chain], [market] and [earning]."""
    bank = f"bank = {json.dumps(choices.bank)}\n" if choices.bank else ""
    market = f"factory = {json.dumps(choices.factory)}\n{bank}start_block = {choices.start_block}"
    earning = f"gas_share = {GAS_SHARE}\nclaim_lags = {CLAIM_LAGS}\nlocks = false"
    return f"poll_seconds = 0.5\n\n[market]\n{market}\n\n[earning]\n{earning}"


def render(choices: Choices) -> str:
    """A complete node.toml, the optional keys with their defaults."""

    def text(value: str) -> str:
        return json.dumps(value, ensure_ascii=False)

    return f"""# A Troth node. Unknown keys are refused; see docs/how-to/operators.md.
version = {VERSION}

[chain]
rpc = {text(choices.rpc)}
{_deployment(choices)}

[node]
class = {text(choices.execution_class)}
model = {text(choices.model)}
slice = {text(choices.slice)}
segments = [{", ".join(text(segment) for segment in choices.segments)}]

[keys]
operator = "keys/operator.json"

[listen]
host = {text(choices.host)}
port = {choices.port}
endpoint = {text(choices.endpoint)}

[engine]
name = {text(choices.engine)}
device = {text(choices.device)}
threads = {choices.threads}   # 0: the engine decides
cache_megabytes = 2048

[limits]
sessions = 256
positions = 8192
trace_gigabytes = 8.0
""" + overlay_table(choices.committee, choices.host, choices.overlay_port, choices.overlay_address)
