"""client.toml: the chain and a [market]; optionally committee, scheduler and class. Unknown keys are refused."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from troth.chain.new_files import replace_file
from troth.client.errors import ConfigurationError
from troth.client.market_table import MarketTable, require_checksum
from troth.overlay.attestation.errors import EvidenceMalformed
from troth.overlay.attestation.measurement import Measurement, parse_measurement
from troth.transport.strict_toml import Section, read_toml, require_version

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
    ("mode", re.compile("scheduler|direct|confidential"), "scheduler, direct or confidential"),
    ("tickets", _ADDRESS, "an address, 0x and 40 hex digits"),
    ("region", re.compile("[a-z0-9-]{1,16}"), "up to 16 of a-z, 0-9 and -"),
)
_OPTIONS = {"mode": "--direct, --no-direct or --confidential"}
_OPTIONAL = {"scheduler", "execution_class", "committee", "overlay", "region", "tickets"}
_ADDRESSES = ("scheduler", "committee", "tickets")


class ClientConfiguration(Section, frozen=True, forbid_unknown_fields=True):
    """What the client must be told; all else (endpoints, TLS keys, prices) it reads from the chain.

    `market` names a deployment. `scheduler` is the operator address of the one to use, and `execution_class` the class
    id (0x…); empty means: the only one there is. `committee` is the contract whose members sign the overlay's
    directory: with it, and unless `overlay` is "off", no request goes to a scheduler directly. `overlay` "on" is
    refused without it. `region` is preferred for relays. With `mode` "direct" requests enter through the overlay at a
    node that hosts the whole model, not at the scheduler. With "confidential" they enter so, too, and only where every
    machine that could read them runs one of `trusted`, as the committee found: measurements, such as "tdx:…".
    `tickets` is the contract whose tickets fill tabs.
    """

    market: MarketTable
    rpc: str = DEFAULT_RPC
    scheduler: str = ""
    execution_class: str = ""
    committee: str = ""
    overlay: str = ""
    region: str = ""
    mode: str = "scheduler"
    trusted: tuple[str, ...] = ()
    tickets: str = ""

    @property
    def anonymous(self) -> bool:
        """Whether requests go through the overlay."""
        return bool(self.committee) and self.overlay != "off"

    @property
    def direct(self) -> bool:
        """Whether requests enter at a node."""
        return self.mode in {"direct", "confidential"}

    @property
    def confidential(self) -> bool:
        """Whether only attested machines may read requests."""
        return self.mode == "confidential"

    @property
    def measurements(self) -> frozenset[Measurement]:
        """Those that the user trusts; raises ConfigurationError for a text that is none."""
        try:
            return frozenset(parse_measurement(text) for text in self.trusted)
        except EvidenceMalformed as error:
            raise ConfigurationError(f"'trusted': {error.what}", error.value, error.remedy) from error

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
        self._require_way()
        return self

    def _require_way(self) -> None:
        """Raise ConfigurationError unless the mode can be had with the overlay, the committee and what is trusted."""
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
        if not self.measurements and self.confidential:
            raise ConfigurationError(
                "A confidential order goes to machines that you trust, and none is named",
                "trusted is empty",
                'Add the measurements of images that you trust to client.toml: trusted = ["tdx:…"].',
            )

    def overridden(self, **values: str | None) -> ClientConfiguration:
        """A copy in which given options replace what the file said."""
        given = {name: value for name, value in values.items() if value}
        return msgspec.structs.replace(self, **given).checked()


class ClientFile(ClientConfiguration, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """client.toml: what is configured, and by which version of the form."""

    version: int


def load(path: Path) -> ClientConfiguration:
    """Read client.toml; ConfigurationError when it is absent, not TOML, of another version, or has other keys."""
    file = read_toml(path, ClientFile, ConfigurationError, "Run `troth client init --network FILE` first.")
    require_version(path, file.version, VERSION, ConfigurationError)
    return ClientConfiguration(*(getattr(file, name) for name in ClientConfiguration.__struct_fields__)).checked()


def save(path: Path, configuration: ClientConfiguration) -> None:
    """Write client.toml, readable by its owner only: an RPC address may hold a provider's secret."""
    checked = configuration.checked()
    lines = [f"version = {VERSION}"]
    # What passed `checked` holds no character that TOML would want escaped.
    lines += [
        f'{name} = "{getattr(checked, name)}"'
        for name in checked.__struct_fields__
        if name not in {"market", "trusted"}
    ]
    if checked.trusted:
        lines.append("trusted = [" + ", ".join(f'"{text}"' for text in checked.trusted) + "]")
    lines += checked.market.lines()
    replace_file(path, ("\n".join(lines) + "\n").encode())
