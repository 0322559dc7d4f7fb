"""The table [market] of client.toml: which deployment is used, what its checks must be worth, what is automatic."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from troth.client.defaults import LEAST_OUTSIDE, LEAST_SEATS
from troth.client.errors import ConfigurationError
from troth.protocol.errors import ProtocolError
from troth.protocol.types import to_address
from troth.transport.strict_toml import MarketSection

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")
_AMOUNT = re.compile(r"[0-9]{1,40}(\.[0-9]{1,18})?\s*[A-Za-z]{0,16}")
_PLAIN = re.compile(r"""[^"\\\x00-\x1f\x7f]{1,4096}""")

Count = Annotated[int, msgspec.Meta(ge=0)]


class MarketTable(MarketSection, frozen=True, forbid_unknown_fields=True):
    """A deployment, and how its user wants to be served.

    Args:
        factory, bank: the contract that made the deployment; its Bank, where the factory made several.
        start_block: a block not after the deployment; it saves reading older ones.
        summons: the most that a summons may deposit without asking, such as "0.01ether"; empty: the user is told how.
        case: the most that a case's bond may be without asking; empty: the user is told how.
        cases: the most that the bonds of all open cases may be together without asking; empty: four times ``case``.
        objections: the most gas that objecting to one claim may cost without asking, in coins; empty: the user is told
            how.
        model: folder of the registered model, or its name among those of `troth model`, for ``--check self``.
        stall: seconds without a line after which an order is given up and asked elsewhere; a scheduler that gives its
            node up says so before.
        verifiers, reviewers: the fewest seats of a class that nobody named.
        agreement: the least share of elements that must agree, in basis points, of a class that nobody named.
        seats: the least seasoned seats in a group.
        outside: share of a group's seats outside its k + 2 largest owners, in basis points.
        suspects: a file that ``troth audit notes --suspects`` wrote; groups with a node in it are checked more often.
    """

    summons: str = ""
    case: str = ""
    cases: str = ""
    objections: str = "0.001ether"
    model: str = ""
    stall: Annotated[int, msgspec.Meta(gt=0, le=3_600)] = 90
    verifiers: Count = 3
    reviewers: Count = 15
    agreement: Count = 8_000
    seats: Count = LEAST_SEATS
    outside: Count = LEAST_OUTSIDE
    suspects: str = ""

    def checked(self) -> MarketTable:
        """This table, or ConfigurationError naming the first value that cannot be."""
        for name in ("factory", "bank"):
            value = getattr(self, name)
            if (value or name == "factory") and not _ADDRESS.fullmatch(value):
                raise _wrong(name, value, "an address, 0x and 40 hex digits")
            require_checksum(name, value, f"--{name}")
        for name in ("summons", "case", "cases", "objections"):
            value = getattr(self, name)
            if value and not _AMOUNT.fullmatch(value):
                raise _wrong(name, value, "an amount, such as 0.01ether")
        for name, kind in (("model", "folder"), ("suspects", "file")):
            value = getattr(self, name)
            if value and not _PLAIN.fullmatch(value):
                raise _wrong(name, value, f"the path of a {kind}, without quotes and backslashes")
        return self

    def lines(self) -> list[str]:
        """As TOML. What passed ``checked`` holds no character that TOML would want escaped."""
        pairs = [(name, getattr(self, name)) for name in self.__struct_fields__]
        shown = [f"{name} = {value}" if isinstance(value, int) else f'{name} = "{value}"' for name, value in pairs]
        return ["", "[market]", *shown]


def require_checksum(name: str, value: str, option: str) -> None:
    """Raise ConfigurationError for an address in which a letter was mistyped (EIP-55); empty is none."""
    try:
        if value:
            to_address(value)
    except ProtocolError as error:
        what = f"'{name}' has a wrong checksum: a character of the address is mistyped"
        raise ConfigurationError(what, repr(value), f"Copy it again, or correct {option}.") from error


def _wrong(name: str, value: object, shape: str) -> ConfigurationError:
    return ConfigurationError(
        f"'{name}' in [market] must be {shape}", repr(value), "Correct it in client.toml, or the option."
    )
