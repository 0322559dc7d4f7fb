"""The parameters of a deployment that is to be created: a shipped set, or a TOML file with fields of the main one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec

from troth.network.errors import CreationRefused
from troth.protocol.market.shipped import BLOCK_SECONDS, DEMO, MAIN, stretched
from troth.protocol.market.types import NO_ADDRESS, Parameters
from troth.protocol.types import to_address
from troth.transport.strict_toml import Section, address_of, read_toml

SHIPPED = {"main": MAIN, "demo": DEMO}
"""Parameters by name."""
ADDRESSES = ("asset", "weights", "prover")
MONEY = ("scheduler_stake", "gas_price")
"""What the shipped sets say in the chain's coin."""
NAMED_MONEY = (
    "Name both in a TOML file, in the token's smallest unit. gas_price is paid for 10^9 gas whatever gas costs then: "
    "name what gas usually costs, and not the most that it may."
)
REMEDY = "Name main, demo, or a TOML file with fields of them, as the dry run prints them with --json."

Blocks = Annotated[int, msgspec.Meta(ge=0, le=0xFFFF_FFFF)] | None
Units = Annotated[int, msgspec.Meta(ge=0)] | None


class ParametersFile(Section, frozen=True, forbid_unknown_fields=True):
    """Fields of `Parameters`: windows in blocks, money in the asset's units. Those left out are the main set's."""

    asset: str | None = None
    lag: Blocks = None
    summons_window: Blocks = None
    lookahead: Blocks = None
    draw_window: Blocks = None
    commit_window: Blocks = None
    reveal_window: Blocks = None
    claim_delay: Blocks = None
    answer_window: Blocks = None
    close_delay: Blocks = None
    unbonding: Blocks = None
    seasoning: Blocks = None
    reference_age: Blocks = None
    suspension_pause: Blocks = None
    scheduler_stake: Units = None
    gas_price: Units = None
    weights: str | None = None
    prover: str | None = None

    def fields(self) -> dict[str, Any]:
        """What the file names, as `Parameters` takes it; raises CreationRefused for what is no address."""
        named = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        return {
            name: address_of(name, value, CreationRefused) if name in ADDRESSES else value
            for name, value in named.items()
        }


def read_parameters(name: str, asset: str, block_seconds: float) -> Parameters:
    """The shipped set of this name, or main's with the fields of a TOML file; windows for a chain of this pace.

    A file's windows are meant as they are written, so only those that it leaves out are stretched. Raises
    CreationRefused where a field is wrong, or where a token's money is left to a set that is made for the chain's coin.
    """
    base = SHIPPED.get(name, MAIN)
    if name != "demo" and block_seconds != BLOCK_SECONDS:
        base = stretched(base, block_seconds)
    named: dict[str, Any] = {}
    if name not in SHIPPED:
        named = read_toml(Path(name), ParametersFile, CreationRefused, REMEDY).fields()
    if asset:
        named["asset"] = to_address(asset)
    missing = ", ".join(field for field in MONEY if field not in named)
    if named.get("asset", NO_ADDRESS) != NO_ADDRESS and missing:
        raise CreationRefused("In a token nobody ships what these are worth", missing, NAMED_MONEY)
    return replace(base, **named)
