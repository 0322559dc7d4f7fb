"""client.toml: the chain and a [market]; optionally committee, scheduler and class. Unknown keys are refused."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path

from troth.client.errors import ConfigurationError
from troth.client.market_table import MarketTable, read_table, require_checksum

VERSION = 1
DEFAULT_RPC = "http://127.0.0.1:8545"
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")
_CLASS = re.compile(r"0x[0-9a-fA-F]{64}|(?!0x)[A-Za-z0-9][A-Za-z0-9._/:+-]{1,79}")
_RPC = re.compile(r"""https?://[^\s"\\]+""")
_SHAPES = (
    ("rpc", _RPC, "an http or https URL"),
    ("scheduler", _ADDRESS, "an operator address, 0x and 40 hex digits"),
    ("execution_class", _CLASS, "a class id, 0x and 64 hex digits, or a class's name"),
    ("committee", _ADDRESS, "an address, 0x and 40 hex digits"),
    ("overlay", re.compile("on|off"), "on or off; left out, it is on where a committee is named"),
    ("mode", re.compile("scheduler|direct"), "scheduler or direct"),
    ("region", re.compile("[a-z0-9-]{1,16}"), "up to 16 of a-z, 0-9 and -"),
)
_OPTIONS = {"mode": "--direct or --no-direct"}
_OPTIONAL = {"scheduler", "execution_class", "committee", "overlay", "region"}
_ADDRESSES = ("scheduler", "committee")


@dataclass(frozen=True, slots=True)
class ClientConfiguration:
    """What the client must be told; all else (endpoints, TLS keys, prices) it reads from the chain.

    `market` names a deployment. `scheduler` is the operator address of the one to use, and `execution_class` the class
    id (0x…); empty means: the only one there is. `committee` is the contract whose members sign the overlay's
    directory: with it, and unless `overlay` is "off", no request goes to a scheduler directly. `overlay` "on" is
    refused without it. `region` is preferred for relays. With `mode` "direct" requests enter through the overlay at a
    node that hosts the whole model, not at the scheduler.
    """

    market: MarketTable
    rpc: str = DEFAULT_RPC
    scheduler: str = ""
    execution_class: str = ""
    committee: str = ""
    overlay: str = ""
    region: str = ""
    mode: str = "scheduler"

    @property
    def anonymous(self) -> bool:
        """Whether requests go through the overlay."""
        return bool(self.committee) and self.overlay != "off"

    @property
    def direct(self) -> bool:
        """Whether requests enter at a node."""
        return self.mode == "direct"

    def checked(self) -> ClientConfiguration:
        """This configuration, or ConfigurationError naming the first value that cannot be."""
        self.market.checked()
        for name, pattern, shape in _SHAPES:
            value = getattr(self, name)
            if (value or name not in _OPTIONAL) and not pattern.fullmatch(value):
                option = _OPTIONS.get(name, f"--{name.replace('_', '-')}")
                # An RPC address may hold a provider's secret, so a wrong one is not repeated.
                shown = f"{len(value)} characters, not shown" if name == "rpc" else repr(value)
                raise ConfigurationError(f"'{name}' must be {shape}", shown, f"Set it in client.toml or with {option}.")
        for name in _ADDRESSES:
            require_checksum(name, getattr(self, name), f"--{name}")
        if self.overlay == "on" and not self.committee:
            raise ConfigurationError(
                "The overlay is wanted, and no committee is configured whose directory lists its relays",
                "overlay is on",
                "Name the contract with --committee; or connect openly, so that the scheduler sees you: --overlay off.",
            )
        if self.direct and not self.anonymous:
            raise ConfigurationError(
                "Direct mode reaches nodes through the overlay alone",
                "overlay is off" if self.committee else "no committee is configured",
                "Leave --overlay off out and name the --committee, or go through the scheduler with --no-direct.",
            )
        return self

    def overridden(self, **values: str | None) -> ClientConfiguration:
        """A copy in which given options replace what the file said."""
        given = {name: value for name, value in values.items() if value}
        return replace(self, **given).checked()  # type: ignore[arg-type]  # market is never among the options


def load(path: Path) -> ClientConfiguration:
    """Read client.toml; ConfigurationError when it is absent, not TOML, of another version, or has other keys."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigurationError(
            "There is no client configuration yet", path, "Run `troth client init --network FILE` first."
        ) from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"The configuration cannot be read: {error}", path, "Correct or remove it.") from error
    version = values.pop("version", None)
    if version != VERSION:
        raise ConfigurationError(
            "The configuration is of another version", version, f"Set version = {VERSION}, or run init again."
        )
    market = values.pop("market", None)
    known = {field.name for field in fields(ClientConfiguration)} - {"market"}
    wrong = sorted(name for name, value in values.items() if type(value) is not str or name not in known)
    if wrong:
        raise ConfigurationError(
            "The configuration has unknown keys, or values of the wrong kind", ", ".join(wrong), f"Correct {path}."
        )
    if market is None:
        raise ConfigurationError(
            "The configuration names no deployment", path, 'Add [market] with factory = "0x…", or run init again.'
        )
    return ClientConfiguration(read_table(market), **values).checked()


def save(path: Path, configuration: ClientConfiguration) -> None:
    """Write client.toml, readable by its owner only: an RPC address may hold a provider's secret."""
    checked = configuration.checked()
    lines = [f"version = {VERSION}"]
    for field in fields(checked):
        value = getattr(checked, field.name)
        if field.name == "market":
            continue
        # What passed `checked` holds no character that TOML would want escaped.
        lines.append(f'{field.name} = "{value}"')
    lines += checked.market.lines()
    path.touch(mode=0o600, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
