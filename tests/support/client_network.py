"""A scheduler that a client's own commands can use: toy nodes, a real tokenizer, an endpoint registered on chain."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI
from support.scheduler_stage import CONTEXT, ENDS, Cast, Stage, execution_class, stage
from support.toy_node import _EMBEDDING, CANDIDATES, COLUMNS, LAYERS, VOCABULARY, ToyNode, choose, layer
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from troth.chain.adapter import Chain
from troth.chain.keystore import DEMO_SCRYPT_N, Key, create_account
from troth.client.configuration import Configuration, save
from troth.client.home import Home
from troth.overlay.identity import create_identity
from troth.overlay.server import TlsServer, serving
from troth.protocol.announcement import announcement_from_wire
from troth.protocol.assignment import draw
from troth.protocol.calls import set_endpoint
from troth.protocol.hashing import keccak256
from troth.protocol.identifiers import model_id
from troth.protocol.types import Address, Hash32, ModelDescriptor
from troth.protocol.wire import Forward, Rows
from troth.scheduler.api import scheduler_app
from troth.scheduler.assembly import assembled
from troth.scheduler.journal import Journal
from troth.scheduler.served import Served, Texts
from troth.scheduler.service import Scheduler

TROTH = str(Path(sys.executable).parent / "troth")
PASSWORD = "correct horse"
SPECIAL = ("<end>", "<user>", "<system>", "<assistant>", "<unknown>")
WORDS = (*SPECIAL, *(f"word{number}" for number in range(len(SPECIAL), VOCABULARY)))
# Does not end with the assistant's mark: the toy model would say that again, and special tokens have no text.
TEMPLATE = "{% for message in messages %}<{{ message.role }}> {{ message.content }} {% endfor %}"


def write_model(folder: Path) -> Texts:
    """A model folder whose tokenizer knows one word per token."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unknown>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.add_special_tokens(list(SPECIAL))
    config = {"model_type": "toy", "max_position_embeddings": CONTEXT, "eos_token_id": 0}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(tokenizer.to_str())
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return Texts.load(folder)


def toy_answer(question: str, tokens: int) -> str:
    """What the toy model answers, computed here in one process."""
    read = [WORDS.index(word) for word in ("<user>", *question.split())]
    said: list[int] = []
    lasts = [np.zeros(COLUMNS, np.float32)] * LAYERS
    while len(said) < tokens:
        rows = _EMBEDDING[read]
        for number in range(LAYERS):
            rows = layer(rows, lasts[number])
            lasts[number] = rows[-1]
        read = [choose(rows[-1])]
        said += read
    return " ".join(WORDS[token] for token in said)


def speaking(texts: Texts, node: type[ToyNode] = ToyNode) -> Cast:
    """The toy model with these texts in its descriptor, on nodes of this kind."""
    weights = Hash32(keccak256(b"toy weights"))
    model = ModelDescriptor(texts.architecture, LAYERS, COLUMNS, VOCABULARY, 0, weights)
    rules = replace(execution_class(), model=model_id(model))

    def make(secret: bytes, chain: Chain, folder: Path, scheduler: Address) -> ToyNode:
        return node(secret, chain.domain, folder, rules.model, scheduler)

    return Cast(model, rules, make)


class CheatingNode(ToyNode):
    """Computes wrong states whenever it is drawn as a candidate for the last segment, and honest ones as a verifier."""

    async def _forward(self, header: Forward, payload: memoryview) -> tuple[Rows, bytes]:
        if header.announcement is not None and header.segment == LAYERS - 1:
            announcement = announcement_from_wire(header.announcement, payload[: header.request_size])
            candidates = draw(announcement.betas[header.segment], self.members, CANDIDATES)
            self.faults.wrong_states = self.address in candidates
        return await super()._forward(header, payload)


@dataclass(frozen=True)
class Spoken:
    """What a command said and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, parsed."""
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, str]:
        """The error of a command that was given --json."""
        return dict(json.loads(self.err.splitlines()[-1])["error"])


@dataclass
class ClientSide:
    """A wallet on disk, and the commands run with it as processes."""

    scene: Stage
    home: Path
    key: Key

    @property
    def address(self) -> Address:
        return self.key.address

    @property
    def password_file(self) -> Path:
        return self.home / "password"

    def command(self, *arguments: object) -> list[str]:
        """A command line; every command accepts --home."""
        return [TROTH, "client", *(str(argument) for argument in arguments), "--home", str(self.home)]

    async def start(self, *arguments: object) -> asyncio.subprocess.Process:
        """Start a command."""
        return await asyncio.create_subprocess_exec(
            *self.command(*arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={
                "PATH": "/usr/bin:/bin",
                "TROTH_PASSWORD_FILE": str(self.password_file),
                "PYTHONUTF8": "1",
                # Which copy of the code is tested.
                "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            },
            # As in a terminal: what a shell runs in its background ignores SIGINT, and so do its children.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )

    async def run(self, *arguments: object, stdin: bytes = b"") -> Spoken:
        """Run a command to its end."""
        process = await self.start(*arguments)
        out, err = await asyncio.wait_for(process.communicate(stdin), 180)
        assert process.returncode is not None
        return Spoken(process.returncode, out.decode(), err.decode())


def client_side(scene: Stage, folder: Path, key: Key, *, wallet: bool = True) -> ClientSide:
    """A home folder; with a wallet for `key` and a configuration, as `init` writes them, unless `wallet` is False."""
    side = ClientSide(scene, folder, key)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    side.password_file.touch(mode=0o600)
    side.password_file.write_text(PASSWORD + "\n")
    if wallet:
        home = Home(folder)
        create_account(home.keystore, PASSWORD, scrypt_n=DEMO_SCRYPT_N, key=key)
        save(home.configuration, Configuration(scene.chain.contract, scene.url))
    return side


@asynccontextmanager
async def reachable(
    scene: Stage, application: FastAPI, folder: Path, tls_key_hash: bytes | None = None
) -> AsyncIterator[None]:
    """Serve an application over TLS at the endpoint that the scheduler then registers, perhaps with another key."""
    identity = create_identity(folder)
    server = TlsServer(application, identity, "127.0.0.1", 0)
    async with serving(server):
        endpoint = f"https://127.0.0.1:{server.port}"
        moved = set_endpoint(scene.scheduler.address, endpoint, Hash32(tls_key_hash or identity.spki_sha256))
        await scene.chain.execute(moved, scene.scheduler)
        yield


@asynccontextmanager
async def network(
    deployed: Any, folder: Path, node: type[ToyNode] = ToyNode, journal: Callable[[Path], Journal] = Journal
) -> AsyncIterator[tuple[Stage, Scheduler]]:
    """Nodes and a scheduler that serve the speaking toy model."""
    texts = write_model(folder / "speaking")
    async with stage(deployed, folder, cast=speaking(texts, node)) as scene:
        served = Served(scene.class_id, ENDS, texts, CONTEXT)
        async with (
            assembled(scene.configuration(served=(served,)), scene.keys, journal) as scheduler,
            reachable(scene, scheduler_app(scheduler), folder / "tls"),
        ):
            yield scene, scheduler
