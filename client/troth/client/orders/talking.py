"""A conversation at a terminal: history, one line for each receipt, saving and going on, models to choose from.

While a line is typed the event loop turns: the client goes on to watch tabs, checks and claims. Lines about what it
does meanwhile are printed above the prompt.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO, Literal, cast

import msgspec

from troth.chain.new_files import replace_file
from troth.client.errors import PromptError
from troth.client.home import Home
from troth.client.orders.conversation import Turn, opening, say, turn_of, user_message
from troth.client.orders.failing import what_happened
from troth.client.orders.models import ModelOnOffer, choose_model, models_on_offer
from troth.client.orders.receipts import shown
from troth.client.orders.running import Running
from troth.client.orders.session import FAILURES
from troth.client.orders.wishes import Wish
from troth.client.prompt import LARGEST_PROMPT, check_text, decode_question
from troth.client.template import Message
from troth.client.terminal import printable_line
from troth.protocol.amounts import Asset

LARGEST_SAVED = 16 << 20
LAST = "last"
HELP = """/models          models on offer, with their prices
/model N         ask another one: its number in that list, or its name
/receipts        one line for each answer of this conversation
/save FILE       write the conversation; `troth client chat --resume FILE` goes on with it
/new             forget what was said; the tab and receipts stay
/exit            end; so does the end of input"""


class _Said(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    role: Literal["system", "user", "assistant"]
    content: Annotated[str, msgspec.Meta(max_length=4 << 20)]


class SavedConversation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A conversation as a file has it: what was said, and the orders that it was paid with."""

    version: Literal[1]
    execution_class: str
    messages: Annotated[list[_Said], msgspec.Meta(max_length=10_000)]
    orders: Annotated[list[Annotated[str, msgspec.Meta(max_length=66)]], msgspec.Meta(max_length=10_000)]


def read_saved(path: Path) -> SavedConversation:
    """A saved conversation; PromptError where it cannot be one."""
    remedy = "Name a file that /save wrote, or `last`."
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_SAVED + 1)
        if len(content) > LARGEST_SAVED:
            raise PromptError("A saved conversation is not so long", path, remedy)
        return msgspec.json.decode(content, type=SavedConversation)
    except OSError as error:
        raise PromptError(f"The conversation cannot be read: {error.strerror}", path, remedy) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PromptError("This is no saved conversation", printable_line(error), remedy) from error


def write_saved(path: Path, saved: SavedConversation) -> None:
    """Write it for its owner's eyes alone: it holds prompts and answers. PromptError where it cannot be written."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, msgspec.json.format(msgspec.json.encode(saved)))
    except OSError as error:
        what, remedy = f"The conversation cannot be saved: {error.strerror}", "Write /save FILE with another name."
        raise PromptError(what, path, remedy) from error


class Typing:
    """Where lines come from: a terminal with editing and history, or a pipe."""

    def __init__(self, history: Path | None, standard_input: BinaryIO | None = None) -> None:
        self._input = standard_input
        self._line: Callable[[], Awaitable[str]] | None = None
        if standard_input is None and sys.stdin.isatty():
            from prompt_toolkit import PromptSession
            from prompt_toolkit.history import FileHistory

            kept = None
            if history is not None:
                history.touch(mode=0o600)
                kept = FileHistory(str(history))
            session: PromptSession[str] = PromptSession(history=kept)
            # Ctrl-C belongs to the line while one is typed, and to the event loop while an answer comes.
            self._line = lambda: session.prompt_async("> ", handle_sigint=True)

    def _source(self) -> BinaryIO:
        if self._input is None:
            # Unbuffered: a buffer's lock would be held by a thread that still reads when the process ends.
            self._input = cast(BinaryIO, open(sys.stdin.fileno(), "rb", buffering=0, closefd=False))  # noqa: SIM115
        return self._input

    def quietly(self) -> AbstractContextManager[object]:
        """While the block runs, what is printed appears above the line that is being typed."""
        if self._line is None:
            return nullcontext()
        from prompt_toolkit.patch_stdout import patch_stdout

        return patch_stdout(raw=True)

    async def next(self) -> bytes | None:
        """The next line; None at the end of input. Ctrl-C empties the line, as a shell does."""
        if self._line is None:
            return await _in_background(partial(_bounded_line, self._source())) or None
        while True:
            try:
                with self.quietly():
                    return (await self._line()).encode("utf-8", "surrogateescape")
            except KeyboardInterrupt:
                say("/exit ends the conversation")
            except EOFError:
                return None


async def _in_background(work: Callable[[], bytes]) -> bytes:
    """Blocking work beside the event loop. The thread does not keep the process: a pipe may never say any more."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[bytes] = loop.create_future()

    def run() -> None:
        # Whoever waited may be gone, and the loop with it.
        with suppress(RuntimeError):
            try:
                line = work()
            except OSError as error:
                loop.call_soon_threadsafe(_settle, done, error)
            else:
                loop.call_soon_threadsafe(_settle, done, line)

    threading.Thread(target=run, name="standard input", daemon=True).start()
    return await done


def _settle(done: asyncio.Future[bytes], result: bytes | OSError) -> None:
    if done.done():
        return
    if isinstance(result, OSError):
        done.set_exception(result)
    else:
        done.set_result(result)


def _bounded_line(standard_input: BinaryIO) -> bytes:
    """A line, cut one byte above the limit; its rest is skipped, or each piece of it would be asked and paid for."""
    line = piece = standard_input.readline(LARGEST_PROMPT + 1)
    while piece and not piece.endswith(b"\n"):
        piece = standard_input.readline(LARGEST_PROMPT + 1)
    return line


@dataclass
class Conversation:
    """What was said and paid so far, and what the user's commands do to it."""

    running: Running
    wish: Wish
    home: Home | None = None
    system: str = ""
    messages: list[Message] = field(default_factory=list)
    orders: list[str] = field(default_factory=list)
    offered: list[ModelOnOffer] = field(default_factory=list)

    @property
    def asset(self) -> Asset:
        """What amounts are in."""
        return self.running.asset

    def resume(self, name: str) -> None:
        """Go on with a saved one; raises PromptError."""
        saved = read_saved(self._path(name))
        self.messages = [{"role": one.role, "content": one.content} for one in saved.messages]
        self.orders = list(saved.orders)
        turns = sum(one.role == "user" for one in saved.messages)
        say(f"{turns} questions and answers are taken up")

    def keep(self, name: str = LAST) -> Path | None:
        """Write it down; None where there is no home to write into."""
        if self.home is None and name == LAST:
            return None
        class_id = self.running.session.class_id
        said = [_Said(one["role"], one["content"]) for one in self.messages]
        saved = SavedConversation(1, "0x" + class_id.hex() if class_id else "", said, list(self.orders))
        path = self._path(name)
        write_saved(path, saved)
        return path

    def _path(self, name: str) -> Path:
        if name == LAST and self.home is not None:
            return self.home.folder / "conversations" / "last.json"
        return Path(name).expanduser()

    async def command(self, line: str) -> None:
        """What a line that begins with a slash asks for; raises a ClientError."""
        word, _, rest = line.partition(" ")
        match word, rest.strip():
            case "/help", _:
                say(HELP)
            case "/new", _:
                self.messages, self.orders = opening(self.system), []
                say("what was said is forgotten here; receipts stay")
            case "/save", "":
                raise PromptError("There is no name to save under", line, "Write /save FILE.")
            case "/save", name:
                say(f"saved to {self.keep(name)}")
            case "/receipts", _:
                self._say_receipts()
            case "/models", _:
                await self._list_models()
            case "/model", name:
                await self._change_model(name)
            case _:
                raise PromptError("There is no such command", printable_line(word), "/help lists them.")

    def _say_receipts(self) -> None:
        session = self.running.session
        for order in self.orders:
            say(shown(session.journal.find(order), session.state).lines(self.asset)[0])
        if not self.orders:
            say("nothing was asked in this conversation yet")

    async def _list_models(self) -> None:
        self.offered = await models_on_offer(self.running.session)
        for number, one in enumerate(self.offered, 1):
            mark = "*" if one.offer.class_id == self.running.session.class_id else " "
            say(f"{mark}{number:>3}  {one.line(self.asset)}")

    async def _change_model(self, name: str) -> None:
        if not self.offered:
            self.offered = await models_on_offer(self.running.session)
        chosen = choose_model(self.offered, name)
        if not chosen.tab:
            remedy = f"troth client open AMOUNT --scheduler {chosen.scheduler} --broadcast"
            raise PromptError("There is no tab with the scheduler of this model", chosen.name, f"Run `{remedy}`.")
        await chosen.use(self.running.session)
        say(f"{chosen.line(self.asset)}")

    async def asked(self, line: bytes) -> Turn | None:
        """One question and its answer; None for an empty line. Raises what asking raises."""
        question = decode_question(line).rstrip("\r\n")
        if not question.strip():
            return None
        messages = [*self.messages, user_message(check_text(question))]
        turn = await turn_of(self.running.session, self.asset, self.wish, messages, brief=True)
        if "order" in turn.result:
            self.orders.append(str(turn.result["order"]))
        say(turn.receipt_line(self.asset))
        if turn.accepted:
            self.messages = [*messages, {"role": "assistant", "content": "".join(turn.pieces)}]
            self.keep()
        return turn


async def talk(conversation: Conversation, typing: Typing) -> None:
    """Ask until /exit or the end of input; an error ends a turn and not the conversation."""
    running = conversation.running
    offer = await running.session.ready()
    written = conversation.asset.show_price(offer.quote.written_price)
    say(f"{offer.execution_class.name}: {written} written tokens; /help lists commands, /exit ends the conversation")
    while (line := await typing.next()) is not None:
        text = line.strip().decode("utf-8", "replace")
        if text in {"/exit", "/quit"}:
            return
        try:
            if text.startswith("/"):
                await conversation.command(text)
            else:
                await conversation.asked(line)
        except FAILURES as error:
            value, remedy = getattr(error, "value", ""), getattr(error, "remedy", "Ask again.")
            say(f"error: {what_happened(error)}\nvalue: {value}\nto do: {remedy}")
