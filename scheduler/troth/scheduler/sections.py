"""The tables of scheduler.toml that say who this scheduler is and what it serves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

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
