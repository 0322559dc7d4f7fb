"""The tables of scheduler.toml that say who this scheduler is and what it serves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec

from troth.protocol.architecture import text_part
from troth.protocol.errors import ProtocolError
from troth.protocol.types import Hash32, segments_from_ends
from troth.scheduler.errors import ConfigurationInvalid
from troth.scheduler.served import ModelTexts, ServedClass
from troth.transport.strict_toml import Hex32, KeysSection, Port, Section

FILE = "scheduler.toml"

VERSION = 1

Count = Annotated[int, msgspec.Meta(ge=1, le=100_000)]


class SchedulerKeysSection(KeysSection, frozen=True, forbid_unknown_fields=True):
    """Keystore files."""

    vrf: str = "keys/vrf.json"


class ListenSection(Section, frozen=True, forbid_unknown_fields=True):
    """Where clients and nodes connect."""

    endpoint: str
    host: str = "0.0.0.0"  # noqa: S104 - clients are elsewhere
    port: Port = 8443


class TunnelsSection(Section, frozen=True, forbid_unknown_fields=True):
    """Ports that are lent to nodes; ``host`` is where they are listened on, by default as [listen] has it."""

    first_port: Annotated[int, msgspec.Meta(ge=1024, le=65_535)]
    ports: Annotated[int, msgspec.Meta(ge=1, le=1024)]
    host: str = ""


@dataclass(frozen=True, slots=True)
class TunnelPorts:
    """Ports that are lent. ``host``: where they are listened on; ``name``: by which others reach them."""

    host: str
    name: str
    ports: range

    def endpoint(self, port: int) -> str:
        """What a node registers."""
        return f"https://{self.name}:{port}"

    def port_in(self, endpoint: str) -> int | None:
        """The port that an endpoint names, if it is one of these."""
        name, _, port = endpoint.removesuffix("/").rpartition(":")
        if name != f"https://{self.name}" or not re.fullmatch("[1-9][0-9]{0,4}", port):
            return None
        return int(port) if int(port) in self.ports else None


def lent_ports(section: TunnelsSection, listen: ListenSection) -> TunnelPorts:
    """The table as it is used; raises ConfigurationInvalid."""
    ports = range(section.first_port, section.first_port + section.ports)
    if ports[-1] >= 1 << 16 or listen.port in ports:
        remedy = "Name ports below 65536, among which the scheduler's own is not."
        raise ConfigurationInvalid("[tunnels] names ports that cannot be lent", f"{ports[0]} to {ports[-1]}", remedy)
    name = urlsplit(listen.endpoint).hostname or ""
    return TunnelPorts(section.host or listen.host, f"[{name}]" if ":" in name else name, ports)


class Serve(Section, frozen=True, forbid_unknown_fields=True):
    """One served class."""

    class_: Hex32 = msgspec.field(name="class")
    model: str
    ends: Annotated[tuple[int, ...], msgspec.Meta(max_length=32)] = ()
    placement: Literal["fixed", "auto"] = "fixed"
    context: Count | None = None


def served_of(folder: Path, entry: Serve) -> ServedClass:
    """A table [[serve]] as the catalogue has it; raises ConfigurationInvalid."""
    texts = ModelTexts.load(folder / Path(entry.model).expanduser())
    layers = text_part(msgspec.json.decode(texts.config)).get("num_hidden_layers")
    if not entry.ends and entry.placement == "fixed":
        raise ConfigurationInvalid('A class has neither ends nor placement = "auto"', entry.class_, "Set one of them.")
    if isinstance(layers, int) and entry.ends:
        try:
            segments_from_ends(entry.ends, layers)
        except ProtocolError as error:
            remedy = f"End with {layers}, for example {layers // 2},{layers}."
            raise ConfigurationInvalid(
                f"The ends do not cut a model of {layers} layers", list(entry.ends), remedy
            ) from error
    return ServedClass(
        Hash32(bytes.fromhex(entry.class_[2:])),
        entry.ends,
        texts,
        entry.context or texts.context,
        placing=entry.placement == "auto",
    )
