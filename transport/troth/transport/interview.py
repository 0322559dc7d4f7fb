"""What `init` commands ask at a terminal for options that were not given; elsewhere a missing option is a usage error.

A wrong answer is told with its remedy, and asked again. Nothing is asked twice that an option or a variable says.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

import typer

from troth.protocol.errors import InvalidField, TrothError
from troth.protocol.types import to_address

Check = Callable[[str], object]
"""Raises a TrothError for an answer that cannot be."""


def at_terminal() -> bool:
    """Whether a person can be asked: both ends are a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


@dataclass(frozen=True, slots=True)
class Alternative:
    """One of several answers: what is taken for it, and how it is shown."""

    value: str
    words: str


class Interview:
    """Asks for what is missing, with ``asking``; without it the first missing option ends the command.

    Every question names its option, so that the answers can be given again by a script.
    """

    def __init__(self, *, asking: bool | None = None) -> None:
        self.asking = at_terminal() if asking is None else asking

    def text(self, value: str, option: str, question: str, *, default: str = "", check: Check | None = None) -> str:
        """The value, or what is typed."""
        if value:
            return value
        self._require(option, question)
        while True:
            typed = str(typer.prompt(f"{question} ({option})", default=default or None, err=True)).strip()
            try:
                if check is not None:
                    check(typed)
                return typed
            except TrothError as error:
                typer.echo(f"  {error.what}: {error.value}\n  {error.remedy}", err=True)

    def factory(self, value: str) -> str:
        """The deployment's factory, which a network's file has as well."""
        question = "Factory of the deployment, 0x…; --network FILE names it, too"
        return self.text(value, "--factory", question, check=contract)

    def choose(self, value: str, option: str, question: str, choices: Sequence[Alternative]) -> str:
        """The value, or one of several, by its number; the only one there is, is taken and said."""
        if value:
            return value
        self._require(option, question)
        if len(choices) == 1:
            typer.echo(f"{question} ({option}): {choices[0].words}", err=True)
            return choices[0].value
        for number, one in enumerate(choices, 1):
            typer.echo(f"  {number}  {one.words}", err=True)
        while True:
            typed = str(typer.prompt(f"{question} ({option}), 1 to {len(choices)}", default="1", err=True)).strip()
            if typed.isascii() and typed.isdecimal() and 1 <= int(typed[:6]) <= len(choices):
                return choices[int(typed) - 1].value
            typer.echo(f"  There is no number {typed[:20]!r} in the list.", err=True)

    def confirm(self, value: bool | None, option: str, question: str) -> bool:
        """What was given, else yes or no; no where nobody can be asked."""
        if value is not None or not self.asking:
            return bool(value)
        return typer.confirm(f"{question} ({option})", default=True, err=True)

    def say(self, line: str) -> None:
        """A line for who is asked."""
        if self.asking:
            typer.echo(line, err=True)

    def _require(self, option: str, question: str) -> None:
        if not self.asking:
            raise typer.BadParameter(f"Missing option '{option}': {question}. At a terminal it is asked for.")


def contract(text: str) -> None:
    """Check an address; raises InvalidField."""
    to_address(text)


def contract_or_none(text: str) -> None:
    """The same, where "none" is an answer."""
    if text != "none":
        contract(text)


def listening_host(endpoint: str) -> str:
    """Where to listen for what reaches an endpoint: on this machine alone where that names it, else everywhere.

    InvalidField for an endpoint that is no https URL, or whose port is none.
    """
    try:
        parts = urlsplit(endpoint)
        host, _ = parts.hostname or "127.0.0.1", parts.port
        if endpoint and (parts.scheme != "https" or not parts.hostname):
            raise ValueError("it has to begin with https:// and a name")
    except ValueError as error:
        what = f"This is no endpoint: {error}"
        raise InvalidField(what, endpoint[:100], "Write it like https://node.example.org:9443.") from error
    return host_to_listen_on(host)


def host_to_listen_on(host: str) -> str:
    """Where to listen for what reaches a name or an address: on this machine alone where it is of this machine."""
    try:
        literal = ip_address(host)
    except ValueError:
        return "127.0.0.1" if host == "localhost" else "0.0.0.0"  # noqa: S104
    if literal.is_loopback:
        return str(literal)
    return "::" if literal.version == 6 else "0.0.0.0"  # noqa: S104


def outward_host(url: str) -> str:
    """The address of this machine towards a place on the network; no packet is sent."""
    parts = urlsplit(url)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((parts.hostname or "127.0.0.1", parts.port or 443))
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
