"""The TOML files of nodes, schedulers, relays and members: strict, with a version, and read in one way.

A file is a struct whose tables are `Section`s. Whoever reads one names the error of its own package, which is raised
for whatever cannot be used: what happened, the file or value, and what to do.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from troth.protocol.errors import ProtocolError, TrothError
from troth.protocol.market.parts import MarketPlace
from troth.protocol.organisations import OrganisationsPlace
from troth.protocol.reputation import ReputationPlace
from troth.protocol.struct_kinds import prepared
from troth.protocol.types import Address, to_address

Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
Hex32 = Annotated[str, msgspec.Meta(pattern=r"^0x[0-9a-fA-F]{64}\Z")]

Refuse = Callable[[str, object, str], TrothError]
"""Makes the error from what happened, the value, and the remedy: the class of an error will do."""


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of a file; an unknown key is an error, since a misspelt limit would silently not hold."""


class ChainSection(Section, frozen=True, forbid_unknown_fields=True):
    """[chain]: the chain's RPC address, the id that it must have if one is named, and how often it is asked."""

    rpc: str
    chain_id: int | None = None
    poll_seconds: Seconds = 0.5


class MarketSection(Section, frozen=True, forbid_unknown_fields=True):
    """[market]: the deployment, see `MarketPlace`; ``bank`` is empty where the factory made one alone."""

    factory: str
    bank: str = ""
    start_block: Annotated[int, msgspec.Meta(ge=0)] = 0

    def place(self, refuse: Refuse) -> MarketPlace:
        """The deployment that the table names."""
        bank = address_of("market.bank", self.bank, refuse) if self.bank else None
        return MarketPlace(address_of("market.factory", self.factory, refuse), bank, self.start_block)


class ReputationSection(Section, frozen=True, forbid_unknown_fields=True):
    """[reputation]: whom the committee rates below its bar gets no work; see `ReputationPlace`."""

    contract: str
    start_block: Annotated[int, msgspec.Meta(ge=0)] = 0

    def place(self, refuse: Refuse) -> ReputationPlace:
        """The contract that the table names."""
        return ReputationPlace(address_of("reputation.contract", self.contract, refuse), self.start_block)


class OrganisationsSection(Section, frozen=True, forbid_unknown_fields=True):
    """[organisations]: where contribution credits are kept; see `OrganisationsPlace`."""

    contract: str
    start_block: Annotated[int, msgspec.Meta(ge=0)] = 0

    def place(self, refuse: Refuse) -> OrganisationsPlace:
        """The contract that the table names."""
        return OrganisationsPlace(address_of("organisations.contract", self.contract, refuse), self.start_block)


class KeysSection(Section, frozen=True, forbid_unknown_fields=True):
    """[keys]: the operator's keystore file."""

    operator: str = "keys/operator.json"


File = TypeVar("File", bound=Section)


def read_toml(path: Path, kind: type[File], refuse: Refuse, missing: str, text: str | None = None) -> File:
    """A file as its struct. ``missing`` is what to do where there is none; else the error names the key.

    ``text`` is what the file is going to be, before it is written.
    """
    try:
        return msgspec.toml.decode(path.read_bytes() if text is None else text, type=prepared(kind))
    except OSError as error:
        raise refuse("There is no configuration", path, missing) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise refuse(f"{path} cannot be used", error, "Correct the key that is named.") from error


def require_version(path: Path, found: int, known: int, refuse: Refuse) -> None:
    """Refuse a file that another version of the program wrote."""
    if found != known:
        raise refuse(f"{path} has another version", found, f"This program reads version {known}.")


def require_https(endpoint: str, refuse: Refuse) -> None:
    """Refuse an endpoint that is not as the registry takes it."""
    if not endpoint.startswith("https://"):
        raise refuse("listen.endpoint starts with https://", endpoint, "Write it as registered: https://name:port.")


def address_of(key: str, text: str, refuse: Refuse) -> Address:
    """The address that stands at a key."""
    try:
        return to_address(text)
    except ProtocolError as error:
        raise refuse(f"{key} is no address", text, error.remedy) from error


def quoted(text: object) -> str:
    """A text as TOML has it."""
    return msgspec.json.encode(str(text)).decode()
