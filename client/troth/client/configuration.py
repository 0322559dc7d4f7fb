"""client.toml: which chain, which contract, and optionally which scheduler and class. Versioned; unknown keys refused."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path

from .errors import ConfigurationError

VERSION = 1
DEFAULT_RPC = "http://127.0.0.1:8545"
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")
_HASH = re.compile(r"0x[0-9a-fA-F]{64}")
_RPC = re.compile(r"""(https?|wss?)://[^\s"\\]+|/[^\s"\\]+\.ipc""")


@dataclass(frozen=True, slots=True)
class Configuration:
    """What the client must be told; all else (endpoints, TLS keys, fees) it reads from the chain.

    `scheduler` is the operator address of the one to use, and `execution_class` the class id (0x…); empty means: the
    only one there is.
    """

    contract: str
    rpc: str = DEFAULT_RPC
    scheduler: str = ""
    execution_class: str = ""

    def checked(self) -> Configuration:
        """This configuration, or ConfigurationError naming the first value that cannot be."""
        for name, pattern, shape in (
            ("contract", _ADDRESS, "an address, 0x and 40 hex digits"),
            ("rpc", _RPC, "an http(s) or ws(s) URL, or the path of an .ipc socket"),
            ("scheduler", _ADDRESS, "an address, 0x and 40 hex digits"),
            ("execution_class", _HASH, "a class id, 0x and 64 hex digits"),
        ):
            value = getattr(self, name)
            optional_and_absent = value == "" and name in {"scheduler", "execution_class"}
            if not optional_and_absent and not pattern.fullmatch(value):
                raise ConfigurationError(f"'{name}' must be {shape}", repr(value), f"Set it in client.toml or --{name}.")
        return self

    def overridden(self, **values: str | None) -> Configuration:
        """A copy in which given options replace what the file said."""
        return replace(self, **{name: value for name, value in values.items() if value}).checked()


def load(path: Path) -> Configuration:
    """Read client.toml. Raises ConfigurationError when it is absent, not TOML, of another version, or has other keys."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigurationError(
            "There is no client configuration yet", path, "Run `troth client init --contract ADDRESS` first."
        ) from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"The configuration cannot be read: {error}", path, "Correct or remove it.") from error
    version = values.pop("version", None)
    if version != VERSION:
        raise ConfigurationError(
            "The configuration is of another version", version, f"Set version = {VERSION}, or run init again."
        )
    known = {field.name for field in fields(Configuration)}
    wrong = sorted(name for name, value in values.items() if name not in known or not isinstance(value, str))
    if wrong:
        raise ConfigurationError("The configuration has unknown keys or values that are no text", wrong, f"See {path}.")
    return Configuration(**{"contract": "", **values}).checked()


def save(path: Path, configuration: Configuration) -> None:
    """Write client.toml. The values passed `checked`, so none needs escaping in TOML."""
    checked = configuration.checked()
    lines = [f"version = {VERSION}"]
    lines += [f'{field.name} = "{getattr(checked, field.name)}"' for field in fields(checked)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
