"""The lines of one order, from its sending to its draw: each is checked before anything is made of it.

Admission with its proof before the first token; tokens in their places; results that every drawn node signed, that meet
and stand for exactly what was received; a draw over these results with a fresh block. What breaks a rule of the
protocol is kept as evidence under the order, which then is neither paid nor asked for again.

In direct mode the lines come from the node that the order entered at. Tokens are shown once the node that serves has
signed all of them; whatever is amiss there, or does not come, is nobody's lie yet: the order goes on at its scheduler,
which has it under the same id, so that nothing is ordered or paid twice.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any

from troth.client.direct.entrance import Entrance
from troth.client.errors import SchedulerUnreachable, StreamError
from troth.client.https_calls import UNSENT_REMEDY, never_sent
from troth.client.orders.calls import MarketCalls, SchedulerRefusal
from troth.client.orders.chosen import AnswerToken, read_chosen
from troth.client.orders.ending import EarlyEnd
from troth.client.orders.failing import (
    VOUCHER_REFUSALS,
    AnswerChanged,
    EntryFailed,
    OrderContradicted,
    OrderFailed,
    OrderStalled,
    OrderUnseen,
    refusal_remedy,
    refused_as,
    unknown_until,
)
from troth.client.orders.journal import LEASE_SECONDS, OrderRecord, Phase
from troth.client.orders.paying import give_up
from troth.client.orders.session import PayerSession, TabContext
from troth.client.orders.updates import CourseStep, ServedUpdate, SignedUpdate, TokenUpdate
from troth.client.tabs.books import top_up_command
from troth.client.terminal import printable_line
from troth.client.untrusted import read_hex, read_whole
from troth.protocol.errors import ProtocolError
from troth.protocol.logprobs import NO_LOGPROBS
from troth.protocol.market import bodies, checks, messages, prices
from troth.protocol.market.bodies import Admitted, Failed, Lottery, Results, Submission
from troth.protocol.market.checks import Answer
from troth.protocol.request import from_canonical_bytes, output_hash
from troth.protocol.types import Address, Hash32

_log = logging.getLogger(__name__)

ADMISSION_SECONDS = 4.0
"""How long a scheduler may take to admit an order where there is another tab; admission computes nothing."""
ENTRY_SECONDS = 5.0
"""How long the node that an order entered at may be silent before its scheduler is asked; asking costs nothing."""
BLAME_SECONDS = 1.0
"""Where the scheduler has more to tell than a silent node so soon, the node kept it back."""
OTHER_LINES = 64
"""Lines besides tokens; an order has three, and a later version may have more."""
OLD_DRAWS = 3
"""Blocks at which a fresh draw was due and an old one came, until the scheduler is not believed any more."""
ALREADY_ORDERED = "already_ordered"
SIGNATURE_BYTES = 65
KEPT_LINE = 4096
"""Bytes of an offending line that are kept."""


class Course:
    """One order under way. What it has seen is in the journal, so that another process can go on where this one was."""

    def __init__(
        self,
        session: PayerSession,
        tab_context: TabContext,
        entry: OrderRecord,
        ending: asyncio.Event | None = None,
    ) -> None:
        submission = entry.submission
        assert submission is not None
        self._session = session
        self._tab_context = tab_context
        self._entry = entry
        self._submission: Submission = submission
        self._order = submission.order.message
        self._request = from_canonical_bytes(submission.request)
        self._view = session.view(self._order, submission.tab)
        self._admitted: Admitted | None = None
        self._results: Results | None = None
        self._lines = 0
        self._patience: float | None = None
        self._resumed = False
        self._held = time.monotonic()
        self._hearsay = False
        self._ending = EarlyEnd(ending, self._request, entry)
        self._unsaid: list[AnswerToken] = []
        self._shown: list[int] = []
        self.tokens: list[int] = []
        self.drawn_over = False

    async def send(self) -> AsyncGenerator[CourseStep, None]:
        """Send the order; what its scheduler says of it, checked, up to the draw.

        Raises OrderFailed, OrderStalled or OrderContradicted.
        """
        newest = self._session.books.record(self._tab_context.identifier).voucher or self._submission.voucher
        sent = Submission(
            self._submission.order,
            self._submission.tab,
            newest,
            self._submission.request,
            self._submission.salt,
            self._submission.logprobs,
        )
        try:
            async with aclosing(self._steps(sent)) as steps:
                async for step in steps:
                    if isinstance(step, ServedUpdate):
                        # Whoever admits an order has accepted the voucher beside it.
                        self._session.books.delivered(self._tab_context.identifier, newest)
                        calls = partial(self._session.calls, self._tab_context)
                        self._ending.watch(self._session.journal, sent, calls)
                    yield step
        finally:
            self._ending.close()

    async def _steps(self, sent: Submission) -> AsyncGenerator[CourseStep, None]:
        entrance, order = self._session.entrance, self._entry.identifier
        node = None
        if entrance is not None:
            node = entrance.enter(order, self._order.execution_class, self._request.prompt_tokens)
        if entrance is not None and node is not None:
            async with aclosing(self._entered(entrance, node, sent)) as steps:
                async for step in steps:
                    yield step
        if self.drawn_over:
            if entrance is not None and self._admitted is not None:
                entrance.served([*self._request.prompt_tokens, *self.tokens], self._admitted.nodes[-1])
            return
        calls = await self._session.calls(self._tab_context)
        known, began = self._admitted is not None or bool(self._shown), time.monotonic()
        lines = calls.again(order, sent.salt) if known else _submitted(calls, sent, order)
        self._fall_back()
        async with aclosing(self.read(lines)) as steps:
            async for step in steps:
                kept_back = isinstance(step, TokenUpdate) and time.monotonic() - began < BLAME_SECONDS
                refused = isinstance(step, ServedUpdate) and not known
                if entrance is not None and node is not None and (kept_back or refused):
                    entrance.failed(order, node)
                    node = None
                yield step

    async def _entered(self, entrance: Entrance, node: Address, sent: Submission) -> AsyncGenerator[CourseStep, None]:
        """The order by way of a node, as far as that goes."""
        try:
            async with entrance.way(self._tab_context.scheduler, node) as calls:
                lines = calls.submit(sent)
                async with aclosing(self.read(lines, patience=ENTRY_SECONDS, hearsay=True)) as steps:
                    async for step in steps:
                        yield step
        except (EntryFailed, SchedulerUnreachable) as error:
            _log.info("the order goes on at its scheduler: %s", error.what)
            if self._ending.asked or (isinstance(error, EntryFailed) and error.silent):
                entrance.leave(self._entry.identifier)
            else:
                entrance.failed(self._entry.identifier, node)

    def _fall_back(self) -> None:
        """Whatever was shown stands, and is compared with what the scheduler tells."""
        self._shown = self.tokens[: len(self.tokens) - len(self._unsaid)]
        self.tokens, self._unsaid = [], []
        self._admitted, self._results, self._lines = None, None, 0

    async def read(
        self,
        lines: AsyncGenerator[dict[str, Any], None],
        *,
        patience: float | None = None,
        resumed: bool = False,
        hearsay: bool = False,
    ) -> AsyncGenerator[CourseStep, None]:
        """The same for lines however they come; ``resumed``: all lines so far of an order that was sent before, for
        which a refusal says nothing about what is owed. ``hearsay``: a node passes them on; raises EntryFailed."""
        identifier, journal = self._entry.identifier, self._session.journal
        self._patience, self._hearsay, self._resumed = patience, hearsay, resumed
        try:
            async with aclosing(lines):
                while not self.drawn_over:
                    line = await self._next(lines)
                    try:
                        steps = await self._checked(line)
                    except (ProtocolError, _Lie) as error:
                        raise self._contradiction(error, line) from error
                    for step in steps:
                        yield step
        except (SchedulerUnreachable, StreamError) as error:
            raise self._broken(error) from error
        except SchedulerRefusal as error:
            if resumed:
                raise
            raise self._refused(error) from error
        finally:
            # Also when the user interrupts: what has arrived belongs to whoever pays for it.
            kept = self.tokens[: len(self.tokens) - len(self._unsaid)]
            if kept:
                journal.step(identifier, tokens=json.dumps(kept).encode())

    # ---- lines

    async def _next(self, lines: AsyncGenerator[dict[str, Any], None]) -> dict[str, Any]:
        limit = float(self._session.table.stall) if self._patience is None else self._patience
        now, others = time.monotonic(), [one for one in self._session.usable() if one is not self._tab_context]
        if self._admitted is None and any(one.away_until <= now for one in others):
            # One that failed a moment ago is no other way: then it is this machine that is slow, and this one is left
            # its time.
            limit = min(ADMISSION_SECONDS, limit)
        try:
            async with asyncio.timeout(limit):
                with self._session.journal.held(self._entry.identifier):
                    line = await anext(lines, None)
        except TimeoutError as error:
            raise self._stalled(f"The scheduler said nothing for {limit:g} s") from error
        if line is None:
            raise self._stalled("The scheduler's stream ended too early")
        self._lines += 1
        if self._lines > self._request.max_tokens + OTHER_LINES:
            raise StreamError("The scheduler's stream does not end", f"{self._lines} lines", "Use another scheduler.")
        if time.monotonic() > self._held + LEASE_SECONDS / 3:
            self._held = time.monotonic()
            self._session.journal.hold(self._entry.identifier)
        return line

    async def _checked(self, line: dict[str, Any]) -> list[CourseStep]:
        match line.get("type"):
            case "admitted":
                return [await self._read_admission(bodies.read_part(Admitted, line))]
            case "token":
                return self._read_token(line)
            case "said" if self._hearsay:
                return self._read_said(line)
            case "results":
                signed = self._read_results(bodies.read_part(Results, line))
                return [*self._release(), signed]
            case "draw":
                await self._read_draw(bodies.read_part(Lottery, line))
                return []
            case "failed":
                raise self._given_up(bodies.read_part(Failed, line))
            case _:
                return []

    async def _read_admission(self, said: Admitted) -> CourseStep:
        before = self._admitted or self._entry.read("admitted", Admitted)
        if before is not None and before.nodes != said.nodes:
            raise _Lie("The scheduler admitted the order twice, with other nodes: both convict it")
        if self._admitted is not None:
            raise _Lie("The scheduler admitted the order twice")
        await self._see(said.admission.message.block_number)
        self._view = self._session.view(self._order, self._submission.tab)
        checks.require_admission(self._order, said.admission, said.nodes, said.infer_proof, self._view)
        self._session.journal.step(self._entry.identifier, Phase.ADMITTED, admitted=said)
        self._admitted = said
        return ServedUpdate(self._entry.identifier, said.nodes)

    def _read_token(self, line: dict[str, Any]) -> list[CourseStep]:
        if self._admitted is None:
            raise _Lie("The scheduler sent tokens before it proved who serves")
        if self._results is not None or len(self.tokens) >= self._request.max_tokens:
            raise _Lie("The scheduler sent a token after the last one")
        if self.tokens and self.tokens[-1] in self._request.end_tokens:
            raise _Lie("The answer goes on after its end")
        vocabulary = self._vocabulary()
        token = read_whole(_number(line.get("id")), 0, vocabulary - 1)
        position = read_whole(_number(line.get("position")), 0, 2**32)
        if position != len(self.tokens):
            what = "A token came twice" if position < len(self.tokens) else "A token is missing"
            raise StreamError(f"{what} in the scheduler's stream", f"position {position}", "See the receipt.")
        hints = line.get("logprobs")
        asked = NO_LOGPROBS if self._submission.logprobs is None else self._submission.logprobs
        chosen = read_chosen(hints if isinstance(hints, dict) else line, token, asked, vocabulary)
        if position < len(self._shown) and self._shown[position] != token:
            raise self._changed()
        self.tokens.append(token)
        if self._hearsay:
            self._unsaid.append(chosen)
            return []
        return [] if position < len(self._shown) else [TokenUpdate(chosen)]

    def _read_said(self, line: dict[str, Any]) -> list[CourseStep]:
        """The node signed all tokens so far; whoever passed them on changed none."""
        if self._admitted is None or _number(line.get("written")) != len(self.tokens):
            raise _Lie("A node signed tokens that did not come")
        said = bodies.Said(self._entry.identifier, output_hash(self._submission.salt, self.tokens))
        signature = read_hex(line.get("signature"), SIGNATURE_BYTES)
        messages.Signed(said, signature).require(self._view.domain, self._admitted.nodes[-1])
        return self._release()

    def _release(self) -> list[CourseStep]:
        ready, self._unsaid = self._unsaid, []
        return [TokenUpdate(chosen) for chosen in ready]

    def _read_results(self, said: Results) -> CourseStep:
        if self._admitted is None or not self.tokens or self._results is not None:
            raise _Lie("Results came twice, or before the answer")
        results = checks.require_results(self._order, said.results, self._admitted.nodes, self._view)
        kept = self._ending.kept(self.tokens, results[-1].written)
        output = output_hash(self._submission.salt, kept)
        checks.require_answer(results, Answer(len(self._request.prompt_tokens), len(kept), output))
        ended = bool(kept) and kept[-1] in self._request.end_tokens
        is_whole = ended or self._ending.fits(len(kept))
        if said.reason != ("end" if ended else "length") or not is_whole:
            raise _Lie(f"The answer does not end as the scheduler says: {printable_line(said.reason, 20)}")
        fee = prices.fee(self._order, self._view.rules, len(results), results[-1])
        told = len(self.tokens) - len(self._unsaid)
        self.tokens, self._unsaid = kept, self._unsaid[: max(len(kept) - told, 0)]  # the rest is nobody's word
        self._session.journal.step(
            self._entry.identifier, Phase.ANSWERED, fee=fee, results=said, tokens=json.dumps(kept).encode()
        )
        self._results = said
        last, nodes, order = results[-1], self._admitted.nodes, self._entry.identifier
        return SignedUpdate(order, said.reason, fee, last.prompt + last.cached, last.cached, last.written, nodes)

    async def _read_draw(self, said: Lottery) -> None:
        if self._results is None:
            raise _Lie("A draw came before the results")
        results = [one.message for one in self._results.results]
        await self._see(said.draw.message.block_number)
        seen_at, drawn_at = self._session.block, said.draw.message.block_number
        assert self._admitted is not None
        late = self._admitted.admission.message.block_number <= drawn_at < seen_at - checks.DRAW_AGE
        if late:
            seen_at = drawn_at  # all the rest of it must hold
        checks.require_draw(self._order, said.draw, results, said.proof, seen_at=seen_at, view=self._view)
        if late:
            raise self._too_late()
        due = said.draw.message.block_number + self._view.lag
        self._session.journal.step(self._entry.identifier, Phase.DRAWN_OVER, due=due, lottery=said)
        self.drawn_over = True

    def _vocabulary(self) -> int:
        known = self._session.state.classes[self._order.execution_class]
        return int(self._session.state.models[known.model].vocabulary)

    async def _see(self, block: int) -> None:
        """Wait until this client has seen a block that the scheduler names.

        A chain node that is slow is no lie of the scheduler: the order stalls, and is asked after again. So far ahead
        that this client's own order would have been too old, it is refused by the rules.
        """
        await self._session.seen(block)
        if self._session.block < block <= self._session.block + self._session.parameters.reference_age:
            what = f"This client's chain node is behind: the scheduler names block {block}"
            if self._hearsay:
                raise EntryFailed(what, silent=True)
            self._session.journal.step(self._entry.identifier, failure=what)
            self._session.journal.release(self._entry.identifier)
            shown = f"`troth client receipts {self._entry.name[:12]}` shows what becomes of the order."
            remedy = f"Wait, or name another chain node: `rpc` in client.toml. {shown}"
            raise OrderUnseen(what, f"block {self._session.block}", remedy)

    # ---- how it fails

    def _given_up(self, said: Failed) -> Exception:
        message = printable_line(said.message)
        if self._hearsay:
            return EntryFailed(f"the node says that the order failed: {message}", silent=True)
        failure = f"given up by the scheduler: {message} ({printable_line(said.code, 40)})"
        give_up(self._session, self._entry, failure)
        remedy = printable_line(said.remedy) or "Ask again; it is free."
        return OrderFailed(f"The scheduler gave the order up: {message}", said.code[:40], remedy)

    def _changed(self) -> AnswerChanged:
        """The node's own word is broken; the order goes on in the background, where its result decides."""
        nodes = () if self._admitted is None else self._admitted.nodes
        error = AnswerChanged(nodes[-1], self._entry.name[:12])
        self._session.journal.step(self._entry.identifier, failure=error.what)
        self._session.journal.release(self._entry.identifier)
        return error

    def _refused(self, error: SchedulerRefusal) -> Exception:
        if self._hearsay:
            return EntryFailed(error.what, silent=True)
        if self._entry_admitted():
            return self._stalled(f"The scheduler denies an order that it admitted: {printable_line(error.what)}")
        if error.code in VOUCHER_REFUSALS and self._admitted is None:
            # Found out by the one who asks: newer words of this tab may be at the scheduler.
            self._tab_context.recovered = False
        give_up(self._session, self._entry, f"refused: {printable_line(error.what)}")
        name = "0x" + self._tab_context.identifier.hex()
        if error.status == 402:
            command = top_up_command(name, error.shortfall) if error.shortfall else "troth client tabs"
            shown = f"{error.shortfall} units short"
            return OrderFailed(error.what, shown, f"Run `{command}`.", shortfall=error.shortfall, tab=name)
        remedy = refusal_remedy(error.code, name[:12]) or error.remedy
        return refused_as(error.code)(error.what, error.value, remedy or "Ask another scheduler.")

    def _broken(self, error: Exception) -> Exception:
        what = getattr(error, "what", str(error))
        if self._hearsay:
            return EntryFailed(what)
        # A question about an order that was sent before: whether that arrived, its own failure does not say.
        unsent = self._admitted is None and not self._entry_admitted() and not self._resumed
        if unsent and never_sent(error):
            give_up(self._session, self._entry, f"never sent: {what}")
            return OrderFailed(what, getattr(error, "value", ""), UNSENT_REMEDY)
        return self._stalled(what)

    def _entry_admitted(self) -> bool:
        """Whether the scheduler's signed admission is there, whoever passed it on."""
        fresh = self._session.journal.entry(self._entry.identifier)
        return fresh.read("admitted", Admitted) is not None

    def _stalled(self, what: str) -> Exception:
        if self._hearsay:
            return EntryFailed(what, silent=True)
        self._session.journal.step(self._entry.identifier, failure=what)
        self._session.journal.release(self._entry.identifier)
        name = self._entry.name[:12]
        if self._admitted is None and not self._entry_admitted():
            last = unknown_until(self._order, self._session.parameters)
            found_out = f"Whether it was admitted is found out by itself, in block {last} at the latest"
            remedy = f"{found_out}; `troth client receipts {name}` shows it."
        else:
            asked = f"`troth client summon {name}` says what it costs to ask for the results on chain"
            remedy = f"It was admitted. Ask again where it may only be slow; {asked}."
        return OrderStalled(what, name, remedy)

    def _too_late(self) -> Exception:
        """An old draw: a secret may count no more, so the answer could be acknowledged and never checked.

        One alone is no lie: this client was away, or the scheduler's view of the chain is behind. A fresh one is asked
        for while results can be summoned: beta and secret stay the same, so nobody chooses. Then the order ends, and
        what is owed for it can be claimed. An honest scheduler draws afresh for half of the lag; who keeps sending old
        draws in that time wants its answers unchecked."""
        if self._hearsay:
            return EntryFailed("the node passes an old draw on", silent=True)
        assert self._admitted is not None
        block, since = self._session.block, self._admitted.admission.message.block_number
        identifier, lag = self._entry.identifier, self._session.parameters.lag
        if block > since + lag:
            failure = "the draw was asked for too late: the answer cannot be checked any more"
            self._session.journal.step(identifier, Phase.REFUSED_CHECK, failure=failure)
            self._session.journal.release(identifier)
            remedy = "Nothing is acknowledged for it; its scheduler may claim it on chain."
            return OrderStalled("The draw was asked for too late", self._entry.name[:12], remedy)
        seen = set(json.loads(self._session.journal.entry(identifier).evidence.get("old_draws", b"[]")))
        if block <= since + lag // 2:
            seen.add(block)
        if len(seen) >= OLD_DRAWS:
            raise _Lie("The scheduler keeps drawing with old blocks")
        failure = "the draw is too old: a fresh one is asked for"
        self._session.journal.step(identifier, failure=failure, old_draws=json.dumps(sorted(seen)).encode())
        self._session.journal.release(identifier)
        return OrderStalled("The draw is too old", self._entry.name[:12], "A fresh one is asked for by itself.")

    def _contradiction(self, error: Exception, line: dict[str, Any]) -> Exception:
        what = error.what if isinstance(error, ProtocolError | _Lie) else str(error)
        if self._hearsay:
            return EntryFailed(what)
        lie = json.dumps(line).encode()[:KEPT_LINE]
        self._session.journal.step(self._entry.identifier, Phase.CONTRADICTED, failure=what, lie=lie)
        self._session.journal.release(self._entry.identifier)
        self._session.books.doubt(self._tab_context.identifier, f"{what} (order {self._entry.name[:12]})")
        remedy = getattr(error, "remedy", "") or "Use another scheduler."
        value = printable_line(getattr(error, "value", ""), 80)
        convicts = f"`troth client case {self._entry.name[:12]}` says whether what was signed convicts somebody."
        return OrderContradicted(what, value or self._entry.name, f"Nothing is paid for it. {remedy} {convicts}")


async def _submitted(calls: MarketCalls, sent: Submission, order: Hash32) -> AsyncGenerator[dict[str, Any], None]:
    """Send an order that may have come by way of a node before: then its lines so far, and those that still come."""
    try:
        async with aclosing(calls.submit(sent)) as lines:
            async for line in lines:
                yield line
        return
    except SchedulerRefusal as error:
        if error.code != ALREADY_ORDERED:
            raise
    async with aclosing(calls.again(order, sent.salt)) as lines:
        async for line in lines:
            yield line


class _Lie(Exception):
    """Something no honest scheduler sends."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


def _number(value: object) -> object:
    """A number that stands as text, as in canonical JSON."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 12 else value
