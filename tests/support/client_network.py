"""A scheduler on tabs that a client's own commands can use: real contracts, toy nodes, a real tokenizer, TLS."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI
from support.chain_scene import ChainScene
from support.forked_program import ForkedProgram, start_forked
from support.tab_scene import CONTEXT
from support.tabs_stage import DEPOSIT, TabsStage, _key, execution_class_of, following, tabs_stage
from support.toy_model import _EMBEDDING, COLUMNS, LAYERS, VOCABULARY, choose, layer
from support.toy_tab_node import ToyTabNode
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE, WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from troth.chain.keystore import DEMO_SCRYPT_N, Key, create_account
from troth.client.configuration import ClientConfiguration, save
from troth.client.home import Home
from troth.client.market_table import MarketTable
from troth.client.tabs.books import TabBooks
from troth.client.tabs.keys import Keyring
from troth.client.tabs.store import opened
from troth.protocol.market import messages
from troth.protocol.market.parts import Part
from troth.protocol.market.signed import Opinion
from troth.protocol.market.state import TabState
from troth.protocol.market.types import Tab
from troth.protocol.types import Hash32, ModelDescriptor
from troth.protocol.wire_market import Advance, Proceed
from troth.scheduler.orders.history import OrderHistory
from troth.scheduler.served import ModelTexts, ServedClass
from troth.testnet import cli, forked
from troth.testnet.ports import free_port
from troth.transport.identity import create_identity
from troth.transport.server import TlsServer, serving

TROTH = str(Path(sys.executable).parent / "troth")
PASSWORD = "correct horse"
SPECIAL = ("<end>", "<user>", "<system>", "<assistant>", "<unknown>")
WORDS = (*SPECIAL, *(f"word{number}" for number in range(len(SPECIAL), VOCABULARY)))
# Does not end with the assistant's mark: the toy model would say that again, and special tokens have no text.
TEMPLATE = "{% for message in messages %}<{{ message.role }}> {{ message.content }} {% endfor %}"
SPELLING_CONTEXT = 1024
LENIENT = {"stall": 60, "reviewers": 5, "seats": 1, "outside": 0}
# A token for each letter that JSON and calls of tools are written in here.
LETTERS = 'abcdefghijklmnopqrstuvwxyz0123456789 {}[]":,._-<>/=?+\n'
TOOLED = (
    "{% for tool in tools or [] %}{{ tool.function.name }} {% endfor %}"
    "{% for m in messages %}{{ m.role }} {{ m.content }}{% for call in m.tool_calls or [] %}"
    "{{ call.function.arguments | tojson }}{% endfor %}\n{% endfor %}"
)


def write_model(folder: Path) -> ModelTexts:
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
    return ModelTexts.load(folder)


def write_spelling_model(folder: Path) -> ModelTexts:
    """A model folder whose tokenizer spells: grammars need one that any text can be written in."""
    folder.mkdir(parents=True, exist_ok=True)
    spelled = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    letters = ["".join(piece for piece, _ in spelled.pre_tokenize_str(letter)) for letter in LETTERS]
    assert len(SPECIAL) + len(letters) <= VOCABULARY
    vocabulary = {text: number for number, text in enumerate((*SPECIAL, *letters))}
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = spelled
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    config = {"model_type": "toy", "max_position_embeddings": SPELLING_CONTEXT, "eos_token_id": 0}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(tokenizer.to_str())
    (folder / "chat_template.jinja").write_text(TOOLED)
    return ModelTexts.load(folder)


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


class Network(ChainScene):
    """The scheduler and its nodes; the clock is the real one, as clients are processes of their own."""

    texts: ModelTexts
    endpoint: tuple[str, Hash32]
    moving: asyncio.Event

    @property
    def now(self) -> int:  # type: ignore[override]
        return int(time.time())

    @now.setter
    def now(self, _value: int) -> None:
        """What a scene sets when it is made."""

    def served(self) -> ServedClass:
        return ServedClass(self.class_id, self.ends, self.texts, self.texts.context)

    @property
    def rpc(self) -> str:
        return str(self.stage.anvil.url)

    @property
    def factory(self) -> str:
        return self.stage.market.place.factory

    def drip(self, seconds: float) -> None:
        """Nodes take so long for every step, one at a time."""
        for node in self.nodes.values():
            node.pause = seconds  # type: ignore[attr-defined]

    @asynccontextmanager
    async def impostor(self, folder: Path) -> AsyncIterator[list[str]]:
        """Somebody with another TLS key at the scheduler's address; what was asked there."""
        asked: list[str] = []

        async def note(scope: Any, _receive: Any, _send: Any) -> None:
            asked.append(scope["type"] + scope.get("path", ""))

        app = FastAPI()
        app.mount("/", note)
        server = TlsServer(app, create_identity(folder), "127.0.0.1", 0)
        async with serving(server):
            await self.move(f"https://127.0.0.1:{server.port}", self.endpoint[1])
            yield asked
        await self.move(*self.endpoint)

    async def move(self, endpoint: str, tls_key_hash: Hash32) -> None:
        operator = self.stage.scheduler
        await self.stage.send(
            self.stage.owner_of(operator), Part.REGISTRY, "setEndpoint", operator.address, endpoint, tls_key_hash
        )

    @contextmanager
    def still(self) -> Iterator[None]:
        """No block comes but those that the test mines."""
        self.moving.clear()
        try:
            yield
        finally:
            self.moving.set()

    async def pass_by(self, blocks: int) -> None:
        """Blocks come, and the scheduler sees them."""
        await asyncio.to_thread(self.stage.anvil.mine, blocks)
        await self.ledger.catch_up()

    def accept(self, opinion: Opinion = Opinion.ACCEPT, noise: float = 0.0) -> None:
        """What verifiers say of answers, and how wrong these are."""
        for node in self.nodes.values():
            node.faults.opinion, node.faults.noise = opinion, noise


class SlowNode(ToyTabNode):
    """Takes a while where a test says so."""

    pause = 0.0

    async def handle(self, header: Any, payload: memoryview) -> tuple[Any, bytes]:
        if self.pause and isinstance(header, Advance | Proceed):
            await asyncio.sleep(self.pause)
        return await super().handle(header, payload)


@asynccontextmanager
async def network(
    anvil: Any, folder: Path, written: Callable[[Path], ModelTexts] = write_model
) -> AsyncIterator[Network]:
    """Nodes and a scheduler that serve the speaking toy model, on a chain that goes on by itself."""
    texts = written(folder / "speaking")
    model = ModelDescriptor(texts.architecture, LAYERS, COLUMNS, VOCABULARY, 0, Hash32(b"\x51" * 32))
    identity, port = create_identity(folder / "tls"), free_port()
    endpoint = f"https://127.0.0.1:{port}", Hash32(identity.spki_sha256)
    operator = _key("scheduler").address

    async with AsyncExitStack() as stack:
        made = tabs_stage(
            anvil,
            model=model,
            execution_class=execution_class_of(model),
            endpoint=lambda one: endpoint if one == operator else ("https://127.0.0.1:1", Hash32(b"\x02" * 32)),
        )
        stage = await stack.enter_async_context(made)
        follower = await stack.enter_async_context(following(stage))
        anvil.fund(stage.scheduler)
        scene = Network(folder, stage, follower, SlowNode)
        scene.texts, scene.model, scene.endpoint = texts, model, endpoint
        scene.moving = asyncio.Event()
        scene.moving.set()
        scene.start()
        for node in scene.nodes.values():
            node.tokenizer = texts.tokenizer
        stack.push_async_callback(scene.stop)
        await stack.enter_async_context(serving(TlsServer(scene.app, identity, "127.0.0.1", port)))
        mining = asyncio.create_task(_mine(scene))
        stack.callback(mining.cancel)
        yield scene


async def _mine(scene: Network) -> None:
    while True:
        await scene.moving.wait()
        with suppress(Exception):
            await scene.pass_by(1)
        await asyncio.sleep(0.25)


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
    """A wallet on disk, its tab, and the commands run with it as processes."""

    scene: Network
    home: Path
    key: Key
    tab: Hash32 = field(default=Hash32(bytes(32)))

    @property
    def password_file(self) -> Path:
        return self.home / "password"

    @property
    def state(self) -> TabState:
        """The tab as the chain has it."""
        return self.scene.ledger.state.tab_state(self.tab)

    @property
    def book(self) -> Any:
        """The tab as its client has it."""
        with opened(Home(self.home).tabs) as store:
            return TabBooks(store).record(self.tab).book

    @property
    def orders(self) -> list[OrderHistory]:
        """Those of the tab that the scheduler admitted."""
        found = (self.scene.context.store.by_number(self.tab, number + 1) for number in range(self.book.sequence))
        return [history for history in found if history is not None]

    def command(self, *arguments: object) -> list[str]:
        """A command line; every command accepts --home."""
        return [TROTH, "client", *(str(argument) for argument in arguments), "--home", str(self.home)]

    @property
    def _environment(self) -> dict[str, str]:
        return {
            "PATH": "/usr/bin:/bin",
            "TROTH_PASSWORD_FILE": str(self.password_file),
            "PYTHONUTF8": "1",
            # Which copy of the code is tested.
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        }

    async def start(self, *arguments: object) -> asyncio.subprocess.Process:
        """Start a command."""
        return await asyncio.create_subprocess_exec(
            *self.command(*arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment,
            # As in a terminal: what a shell runs in its background ignores SIGINT, and so do its children.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )

    async def forked(self, *arguments: object) -> ForkedProgram:
        """Start a command that reads nothing, in a process that is forked."""
        folder = Path(tempfile.mkdtemp(prefix="printed", dir=self.home.parent))
        return await start_forked(cli.command(*self.command(*arguments)[1:]), self._environment, folder)

    async def run(self, *arguments: object, stdin: bytes = b"") -> Spoken:
        """Run a command to its end."""
        if not stdin:
            return await self.ended(cli.command(*self.command(*arguments)[1:]))
        process = await self.start(*arguments)
        out, err = await asyncio.wait_for(process.communicate(stdin), 180)
        assert process.returncode is not None
        return Spoken(process.returncode, out.decode(), err.decode())

    async def ended(self, command: list[str]) -> Spoken:
        """What a Python program of this client said, given as for a shell."""
        done = await asyncio.to_thread(forked.run, command, self._environment, 180)
        return Spoken(done.returncode, done.stdout, done.stderr)


async def client_side(scene: Network, folder: Path, *, deposit: int = DEPOSIT, wallet: bool = True) -> ClientSide:
    """A home folder; unless ``wallet`` is False with wallet, configuration and an open tab, as `init` and `open` do."""
    stage, home = scene.stage, Home(folder)
    side = ClientSide(scene, folder, stage.client)
    _write_password(side)
    if not wallet:
        return side
    home.create()
    create_account(home.keystore, PASSWORD, scrypt_n=DEMO_SCRYPT_N, key=side.key)
    save(home.configuration, configuration(stage))
    key = Keyring(home, PASSWORD).create(DEMO_SCRYPT_N)
    tab = Tab(side.key.address, stage.scheduler.address, key.address)
    side.tab = messages.tab_id(tab)
    with opened(home.tabs) as store:
        TabBooks(store).add(tab, chain_id=31337, bank=stage.market.contracts.bank, factory=scene.factory)
    await stage.open_tab(side.key, stage.scheduler.address, key, deposit)
    await scene.ledger.catch_up()
    return side


def _write_password(side: ClientSide) -> None:
    side.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    side.password_file.touch(mode=0o600)
    side.password_file.write_text(PASSWORD + "\n")


def configuration(stage: TabsStage) -> ClientConfiguration:
    """That of a client which accepts so small a market; the class is named, as it has fewer seats than clients want."""
    table = MarketTable(stage.market.place.factory, stage.market.contracts.bank, **LENIENT)
    return ClientConfiguration(table, str(stage.anvil.url), execution_class="0x" + stage.class_id.hex())
