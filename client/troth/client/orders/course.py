"""The lines of one order, from its sending to its draw: each is checked before anything is made of it.

Admission with its proof before the first token; tokens in their places; results that every drawn node signed, that meet
and stand for exactly what was received; a draw over these results with a fresh block. What breaks a rule of the
protocol is kept as evidence under the order, which then is neither paid nor asked for again.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from troth.client.chosen import read_chosen
from troth.client.delivered import never_sent
from troth.client.errors import SchedulerUnreachable, StreamError
from troth.client.orders.calls import Refused
from troth.client.orders.failing import OrderContradicted, OrderFailed, OrderStalled
from troth.client.orders.journal import LEASE_SECONDS, Entry, Phase
from troth.client.orders.paying import give_up
from troth.client.orders.session import Desk, MarketSession
from troth.client.orders.updates import Served, Signed, Step, Token
from troth.client.tabs.books import top_up_command
from troth.client.terminal import printable_line
from troth.client.untrusted import read_whole
from troth.protocol.errors import ProtocolError
from troth.protocol.logprobs import NO_LOGPROBS
from troth.protocol.market import bodies, checks, prices
from troth.protocol.market.bodies import Admitted, Failed, Lottery, Results, Submission
from troth.protocol.market.checks import Answer
from troth.protocol.request import from_canonical_bytes, output_hash

ADMISSION_SECONDS = 4.0
"""How long a scheduler may take to admit an order where there is another tab; admission computes nothing."""
OTHER_LINES = 64
"""Lines besides tokens; an order has three, and a later version may have more."""
KEPT_LINE = 4096
"""Bytes of an offending line that are kept."""


class Course:
    """One order under way. What it has seen is in the journal, so that another process can go on where this one was."""

    def __init__(self, session: MarketSession, desk: Desk, entry: Entry) -> None:
        submission = entry.submission
        assert submission is not None
        self._session = session
        self._desk = desk
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
        self.tokens: list[int] = []
        self.drawn_over = False

    async def send(self) -> AsyncGenerator[Step, None]:
        """Send the order; what its scheduler says of it, checked, up to the draw.

        Raises OrderFailed, OrderStalled or OrderContradicted.
        """
        calls = await self._session.calls(self._desk)
        newest = self._session.books.record(self._desk.identifier).voucher or self._submission.voucher
        sent = Submission(
            self._submission.order,
            self._submission.tab,
            newest,
            self._submission.request,
            self._submission.salt,
            self._submission.logprobs,
        )
        async with aclosing(self.read(calls.submit(sent))) as steps:
            async for step in steps:
                if isinstance(step, Served):
                    # Whoever admits an order has accepted the voucher beside it.
                    self._session.books.delivered(self._desk.identifier, newest)
                yield step

    async def read(
        self, lines: AsyncGenerator[dict[str, Any], None], *, patience: float | None = None, resumed: bool = False
    ) -> AsyncGenerator[Step, None]:
        """The same for lines however they come; ``resumed``: all lines so far of an order that was sent before, for
        which a refusal says nothing about what is owed."""
        identifier, journal = self._entry.identifier, self._session.journal
        self._patience, self._resumed = patience, resumed
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
        except Refused as error:
            if resumed:
                raise
            raise self._refused(error) from error
        finally:
            # Also when the user interrupts: what has arrived belongs to whoever pays for it.
            if self.tokens:
                journal.step(identifier, tokens=json.dumps(self.tokens).encode())

    # ---- lines

    async def _next(self, lines: AsyncGenerator[dict[str, Any], None]) -> dict[str, Any]:
        limit = float(self._session.table.stall) if self._patience is None else self._patience
        if self._admitted is None and len(self._session.usable()) > 1:
            limit = min(ADMISSION_SECONDS, limit)
        try:
            async with asyncio.timeout(limit):
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

    async def _checked(self, line: dict[str, Any]) -> list[Step]:
        match line.get("type"):
            case "admitted":
                return [await self._read_admission(bodies.read_part(Admitted, line))]
            case "token":
                return self._read_token(line)
            case "results":
                return [self._read_results(bodies.read_part(Results, line))]
            case "draw":
                await self._read_draw(bodies.read_part(Lottery, line))
                return []
            case "failed":
                raise self._given_up(bodies.read_part(Failed, line))
            case _:
                return []

    async def _read_admission(self, said: Admitted) -> Step:
        before = self._admitted or self._entry.read("admitted", Admitted)
        if before is not None and before.nodes != said.nodes:
            raise _Lie("The scheduler admitted the order twice, with other nodes: both convict it")
        if self._admitted is not None:
            raise _Lie("The scheduler admitted the order twice")
        await self._session.seen(said.admission.message.block_number)
        self._view = self._session.view(self._order, self._submission.tab)
        checks.require_admission(self._order, said.admission, said.nodes, said.infer_proof, self._view)
        self._session.journal.step(self._entry.identifier, Phase.ADMITTED, admitted=said)
        self._admitted = said
        return Served(self._entry.identifier, said.nodes)

    def _read_token(self, line: dict[str, Any]) -> list[Step]:
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
        self.tokens.append(token)
        return [Token(chosen)]

    def _read_results(self, said: Results) -> Step:
        if self._admitted is None or not self.tokens or self._results is not None:
            raise _Lie("Results came twice, or before the answer")
        results = checks.require_results(self._order, said.results, self._admitted.nodes, self._view)
        expected = output_hash(self._submission.salt, self.tokens)
        answer = Answer(len(self._request.prompt_tokens), len(self.tokens), expected)
        checks.require_answer(results, answer)
        ended = self.tokens[-1] in self._request.end_tokens
        if said.reason != ("end" if ended else "length") or not (ended or len(self.tokens) == self._request.max_tokens):
            raise _Lie(f"The answer does not end as the scheduler says: {printable_line(said.reason, 20)}")
        fee = prices.fee(self._order, self._view.rules, len(results), results[-1])
        self._session.journal.step(
            self._entry.identifier, Phase.ANSWERED, fee=fee, results=said, tokens=json.dumps(self.tokens).encode()
        )
        self._results = said
        last, nodes = results[-1], self._admitted.nodes
        cached, written = last.cached, last.written
        prompt = last.prompt + last.cached
        return Signed(self._entry.identifier, said.reason, fee, prompt, cached, written, nodes)

    async def _read_draw(self, said: Lottery) -> None:
        if self._results is None:
            raise _Lie("A draw came before the results")
        results = [one.message for one in self._results.results]
        await self._session.seen(said.draw.message.block_number)
        seen_at, drawn_at = self._session.block, said.draw.message.block_number
        late = self._resumed and seen_at > drawn_at + checks.DRAW_AGE
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

    # ---- how it fails

    def _given_up(self, said: Failed) -> OrderFailed:
        message = printable_line(said.message)
        failure = f"given up by the scheduler: {message} ({printable_line(said.code, 40)})"
        give_up(self._session, self._entry, failure)
        remedy = printable_line(said.remedy) or "Ask again; it is free."
        return OrderFailed(f"The scheduler gave the order up: {message}", said.code[:40], remedy)

    def _refused(self, error: Refused) -> Exception:
        if error.code in _VOUCHERS and self._admitted is None:
            # Found out by the one who asks: newer words of this tab may be at the scheduler.
            self._desk.recovered = False
        give_up(self._session, self._entry, f"refused: {printable_line(error.what)}")
        name = "0x" + self._desk.identifier.hex()
        if error.status == 402:
            command = top_up_command(name, error.shortfall) if error.shortfall else f"troth client tabs {name[:12]}"
            shown = f"{error.shortfall} units short"
            return OrderFailed(error.what, shown, f"Run `{command}`.", shortfall=error.shortfall, tab=name)
        return OrderFailed(error.what, error.value, error.remedy or "Ask another scheduler.")

    def _broken(self, error: Exception) -> Exception:
        what = getattr(error, "what", str(error))
        # A question about an order that was sent before: whether that arrived, its own failure does not say.
        if self._admitted is None and not self._resumed and never_sent(error):
            give_up(self._session, self._entry, f"never sent: {what}")
            return OrderFailed(what, getattr(error, "value", ""), "Nothing was sent: asking again is free.")
        return self._stalled(what)

    def _stalled(self, what: str) -> OrderStalled:
        self._session.journal.step(self._entry.identifier, failure=what)
        self._session.journal.release(self._entry.identifier)
        name = self._entry.name[:12]
        if self._admitted is None:
            remedy = f"Whether it was admitted is found out by itself; `troth client receipts {name}` shows it."
        else:
            remedy = f"It was admitted: `troth client summon {name} --broadcast` asks for the results on chain."
        return OrderStalled(what, name, remedy)

    def _too_late(self) -> OrderStalled:
        """An honest scheduler's old draw, for a client that was away: no secret counts any more, so this answer can no
        longer be checked. That is no lie; it is not acknowledged either, else a stream that breaks off before each
        draw would spare its scheduler all checks. What is owed for it can be claimed."""
        what = "the draw was asked for too late: the answer cannot be checked any more"
        self._session.journal.step(self._entry.identifier, Phase.REFUSED_CHECK, failure=what)
        self._session.journal.release(self._entry.identifier)
        remedy = "Nothing is acknowledged for it; its scheduler may claim it on chain."
        return OrderStalled("The draw was asked for too late", self._entry.name[:12], remedy)

    def _contradiction(self, error: Exception, line: dict[str, Any]) -> OrderContradicted:
        what = error.what if isinstance(error, ProtocolError | _Lie) else str(error)
        lie = json.dumps(line).encode()[:KEPT_LINE]
        self._session.journal.step(self._entry.identifier, Phase.CONTRADICTED, failure=what, lie=lie)
        self._session.journal.release(self._entry.identifier)
        self._session.books.doubt(self._desk.identifier, f"{what} (order {self._entry.name[:12]})")
        remedy = getattr(error, "remedy", "") or "Use another scheduler."
        value = printable_line(getattr(error, "value", ""), 80)
        convicts = f"`troth client case {self._entry.name[:12]}` says whether what was signed convicts somebody."
        return OrderContradicted(what, value or self._entry.name, f"Nothing is paid for it. {remedy} {convicts}")


class _Lie(Exception):
    """Something no honest scheduler sends."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


_VOUCHERS = {"voucher_refused", "invalid_voucher"}
"""Codes of refusals that a newer word of the tab mends."""


def _number(value: object) -> object:
    """A number that stands as text, as in canonical JSON."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 12 else value
