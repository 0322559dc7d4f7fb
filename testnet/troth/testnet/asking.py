"""A client of a network that asks through the library, so that a demo sees which nodes were drawn."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from troth.chain import keystore
from troth.client.choices import SamplingChoices
from troth.client.configuration import load
from troth.client.home import Home
from troth.client.orders.asking import ask
from troth.client.orders.running import running
from troth.client.orders.updates import (
    DrawnUpdate,
    EndedUpdate,
    OrderOutcome,
    SentUpdate,
    ServedUpdate,
    SignedUpdate,
    TextUpdate,
    Update,
)
from troth.client.orders.wishes import CheckWish, Wish
from troth.client.template import Message
from troth.protocol.types import Address
from troth.testnet import cli
from troth.testnet.anvil import fund
from troth.testnet.network import LocalNetwork
from troth.testnet.parties import ETHER, PASSWORD

DEPOSIT = "0.05ether"
POLICY = {"seats": "10", "outside": "1000", "reviewers": "5"}
"""What a client asks of a class at least, smaller than usual: these networks have few nodes."""

OnText = Callable[["Answered", str], None]


@dataclass(slots=True)
class Answered:
    """What became of a question. ``nodes`` are those of each of its orders, the last one's last; ``verifiers``, by
    segment, those who checked the last one."""

    text: str = ""
    pieces: int = 0
    nodes: list[tuple[Address, ...]] = field(default_factory=list)
    verifiers: tuple[tuple[Address, ...], ...] = ()
    anew: int = 0
    cached: int = 0
    outcome: OrderOutcome | None = None
    advice: str = ""

    def note(self, update: Update) -> None:
        """One step of the question's course."""
        match update:
            case SentUpdate(again=again):
                self.anew += again
            case ServedUpdate(nodes=nodes):
                self.nodes.append(nodes)
            case TextUpdate(text):
                self.text += text
                self.pieces += 1
            case SignedUpdate():
                self.cached = update.cached
            case DrawnUpdate(verifiers=verifiers):
                self.verifiers = verifiers
            case EndedUpdate():
                self.outcome, self.advice = update.outcome, update.advice
            case _:
                return


@dataclass(slots=True)
class Asker:
    """One wallet with one tab; commands where a user has them, the library to ask."""

    network: LocalNetwork
    key: keystore.Key = field(default_factory=keystore.Key.generate)

    @property
    def home(self) -> Path:
        """The client's files."""
        return self.network.home / "client"

    def open_tab(self, **policy: str) -> dict[str, Any]:
        """Wallet, configuration and tab; ``policy`` replaces fields of what is asked of a class."""
        network, keyfile = self.network, self.network.home / "keys" / "client.json"
        keystore.create_account(keyfile, PASSWORD.strip(), scrypt_n=keystore.DEMO_SCRYPT_N, key=self.key)
        fund(network.rpc, self.key.address, ETHER)
        options = ("--home", self.home, "--factory", network.factory, "--rpc", network.rpc)
        named = ("--execution-class", network.execution_class, "--import-key", keyfile)
        cli.run(network.password_file, "client", "init", *options, *named)
        configuration = Home(self.home).configuration
        text = configuration.read_text()
        for name, value in {**POLICY, **policy}.items():
            text = re.sub(rf"^{name} = .*$", f"{name} = {value}", text, flags=re.MULTILINE)
        configuration.write_text(text)
        whom = ("--scheduler", network.scheduler.operator, "--home", self.home)
        opened: dict[str, Any] = cli.run(network.password_file, "client", "open", DEPOSIT, *whom, "--broadcast")
        return opened

    def ask(self, messages: Sequence[Message], max_tokens: int, on_text: OnText, *, check: str = "always") -> Answered:
        """The greedy answer to a conversation, once its check is through."""
        return asyncio.run(self.asked(messages, max_tokens, on_text, check=check))

    async def asked(
        self, messages: Sequence[Message], max_tokens: int, on_text: OnText, *, check: str = "always"
    ) -> Answered:
        """The same inside of a loop; ``on_text`` runs in a thread."""
        home, answered = Home(self.home), Answered()
        wish = Wish(SamplingChoices(max_tokens), CheckWish.read(check))
        async with running(home, load(home.configuration), self.network.password_file) as run:
            await run.session.ready()
            assert run.session.language is not None  # ready() loads it
            prompt = run.session.language.prompt_tokens(messages)
            async with aclosing(ask(run.session, prompt, wish)) as updates:
                async for update in updates:
                    answered.note(update)
                    if isinstance(update, TextUpdate):
                        await asyncio.to_thread(on_text, answered, update.text)
            await run.keeper.once()
        return answered
