"""One trial: notes are written, a client asks, and everything that came of it is recorded, money to the wei."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from typing import Any

from adversaries.money import Accountant, Count, open_work, paid_work, spent_with_scheduler
from adversaries.network import Client, Network, joined
from adversaries.notes import INFERENCER, SCHEDULER, verifier
from adversaries.registry import CHECKED, CONVICTED, FAILED, NEW_CLIENT, SCHEDULER_CONVICTED, STRUCK, UNPAID, Row
from troth.client.choices import SamplingChoices
from troth.client.errors import ClientError
from troth.client.orders.asking import ask
from troth.client.orders.journal import OrderRecord, Phase
from troth.client.orders.updates import DrawnUpdate, EndedUpdate, FinishedUpdate, SentUpdate, ServedUpdate
from troth.client.orders.wishes import CheckWish, Wish
from troth.protocol.market.messages import DOUBTS, case_id
from troth.protocol.market.proceedings import Fault, Outcome, SummonsKind
from troth.protocol.types import Address, Hash32

TRIAL_SECONDS = 180.0
"""As long as a window for reviewers' commitments and one for their reveals."""
SETTLE_SECONDS = 8.0
NEVER_PAID = {Phase.CONTRADICTED, Phase.REFUSED_CHECK}
LOOK_SECONDS = 0.1
LINES_SHOWN = 30
"""Of each process, where a row breaks."""
ATTEMPTS = 6
ACCOMPLICE = "shows its opening"
"""The cheat of a verifier that did its work, and lets another one copy."""
FALLEN = {CONVICTED, "node missing", FAILED}
"""Where an answer falls, its client owes nothing, and its scheduler has paid who checked it and who served the rest."""
SYSTEM = "You are a careful assistant. Answer in one short sentence and add nothing to it."
QUESTIONS = ("Name a colour.", "Name a fruit.", "Name a city in Italy.", "Name an animal that swims.")
PHASES = {Phase.UNDRAWN: "undrawn", Phase.CHECKED: CHECKED, Phase.UNCLEAR: "no majority", Phase.CONTRADICTED: "refused"}


@dataclass(slots=True)
class Finding:
    """What a trial showed. ``seconds`` and ``blocks`` count from the answer's last token to what ended it.

    ``paid`` is what the client acknowledged, ``advanced`` what its scheduler paid for an answer that fell,
    ``deposits`` what the client's summons and objections may cost: they pay an answer's gas.
    """

    row: Row
    outcome: str = ""
    said: str = ""
    blocks: int = 0
    seconds: float = 0.0
    judged: list[dict[str, Any]] = field(default_factory=list)
    parts: dict[str, list[str]] = field(default_factory=dict)
    paid: int = 0
    advanced: int = 0
    deposits: int = 0
    change: Count = field(default_factory=Count)
    broken: list[str] = field(default_factory=list)
    wall: float = 0.0

    def part_of(self, party: str) -> str:
        """What a party was: its first part, or "others"."""
        return next(iter(self.parts.get(party, [])), "another node" if party.startswith("node") else party)


@dataclass
class Trial:
    """A row on its network, with what scripts need.

    ``is_payer_gone``: nobody pays for its orders any more, so that nobody waits for it. ``asked``: deposits of a
    party's objections that were answered, by number. ``paid_before``: what the client paid for
    orders that are not among these any more. ``stack`` ends with the row.
    """

    network: Network
    accountant: Accountant
    row: Row
    found: Finding
    orders: list[Hash32] = field(default_factory=list)
    nodes: tuple[Address, ...] = ()
    verifiers: tuple[tuple[Address, ...], ...] = ()
    answered: float = 0.0
    answered_block: int = 0
    proven_before: frozenset[Hash32] = frozenset()
    first: int = 0
    is_payer_gone: bool = False
    paid_before: int = 0
    asked: dict[str, dict[int, int]] = field(default_factory=dict)
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def client(self) -> Client:
        """Who asks."""
        return self.network.clients[self.row.client]

    @property
    def order(self) -> Hash32:
        """The order that the notes are about; RuntimeError with what the client was told where none was sent."""
        if len(self.orders) <= self.first:
            raise RuntimeError(f"no order was sent: {self.found.said or 'the client was told nothing'}")
        return self.orders[self.first]

    @property
    def entry(self) -> OrderRecord:
        """As the client has it."""
        return self.client.session.journal.entry(self.order)

    def prompt(self, number: int = 0) -> tuple[int, ...]:
        """A question's tokens."""
        if not self.network.plan.model:
            return (3, 1, 4, 1, 5, 9, 2, 6 + number)
        language = self.client.session.language
        assert language is not None
        question = QUESTIONS[number % len(QUESTIONS)]
        messages = ({"role": "system", "content": SYSTEM}, {"role": "user", "content": question})
        return language.prompt_tokens(messages)  # type: ignore[arg-type]

    async def ask(self, *, check: str | None = None, cheats: bool = True) -> None:
        """One question by the shipped client; what it was told goes into the finding."""
        row, session = self.row, self.client.session
        for record in session.books.all(session.domain):
            session.books.doubt(record.identifier, "")
        for tab_context in session.tab_contexts.values():
            tab_context.away_until = 0.0
        wish = Wish(SamplingChoices(row.tokens, int(row.temperature * 1_000_000)), CheckWish.read(check or row.check))
        self.note_answered()
        try:
            async with aclosing(ask(session, self.prompt(), wish)) as updates:
                async for update in updates:
                    self._hear(update, cheats=cheats)
        except ClientError as error:
            self.found.said += f"{type(error).__name__}: {error.what}"

    async def ask_until_served(self) -> None:
        """Another order is played where one failed on a busy machine, or where the draw gave a cheat more seats than
        the row is about: one verifier may hold most of them."""
        why: list[str] = []
        for _ in range(ATTEMPTS):
            await self.ask()
            served = self.entry.phase is not Phase.FAILED or self.row.outcome == FAILED
            if served and self._is_fair():
                return
            why.append(self.found.said if not served else "the cheat has other seats than the row is about")
            self.begin_anew()
        raise RuntimeError(f"no order came as the row wants it in {ATTEMPTS} tries: {'; '.join(why)}")

    def begin_anew(self) -> None:
        """The next order is the one that the notes are about."""
        self.first, self.found.said, self.verifiers = len(self.orders), "", ()

    def _is_fair(self) -> bool:
        """Whether honest verifiers hold most seats where one cheats, and cheats where two do."""
        cheating = {part for part, cheat in self.row.cheats if part.startswith("verifier") and cheat != ACCOMPLICE}
        if not self.verifiers or len(cheating) not in {1, 2}:
            return True
        drawn = self.verifiers[0]
        names = {node: verifier(number) for number, node in enumerate(dict.fromkeys(drawn))}
        held = sum(names[node] in cheating for node in drawn)
        return 2 * held < len(drawn) if len(cheating) == 1 else 2 * held > len(drawn)

    def _hear(self, update: Any, *, cheats: bool) -> None:
        match update:
            case SentUpdate():
                if cheats and len(self.orders) == self.first:
                    self.network.notes.write(update.order, dict(self.row.cheats))
                self.orders.append(update.order)
            case ServedUpdate() if len(self.orders) == self.first + 1:
                self.nodes = update.nodes
            case FinishedUpdate():
                self.note_answered()
            case DrawnUpdate() if len(self.orders) == self.first + 1:
                self.verifiers = update.verifiers
            case EndedUpdate():
                self.found.said += update.advice

    def note_answered(self) -> None:
        """From here seconds and blocks count."""
        self.answered, self.answered_block = time.monotonic(), self.network.follower.block

    # ---- how it ends

    async def until(self, condition: Callable[[], bool], what: str, seconds: float = TRIAL_SECONDS) -> None:
        """Wait; TimeoutError names what did not come."""
        until = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > until:
                raise TimeoutError(f"{what} did not come within {seconds:g} s; {self._shown()}")
            self.network.require_alive()
            if self.entry.phase is Phase.FAILED and self.row.outcome not in {FAILED, STRUCK}:
                raise RuntimeError(f"{what} cannot come: {self._shown()}")
            await asyncio.sleep(LOOK_SECONDS)

    def _shown(self) -> str:
        return f"{self.entry.phase}, {self.entry.failure}; the client was told {self.found.said!r}"

    def note_end(self, outcome: str) -> None:
        """It ended now."""
        self.found.outcome = outcome
        self.found.seconds = time.monotonic() - self.answered
        self.found.blocks = self.network.follower.block - self.answered_block

    def case_outcome(self) -> Outcome | None:
        """How the newest case over the order ended."""
        cases = self.network.follower.state.cases
        places = [place + segment for place in (0, DOUBTS) for segment in range(len(self.network.plan.ends))]
        ended = [cases[name].outcome for place in places if (name := case_id(self.order, place)) in cases]
        return next((one for one in ended if one is not None), None)

    def summons(self) -> list[Any]:
        """Summons of the order that stand or stood."""
        return [one for one in self.network.follower.state.summons.values() if one.state.order == self.order]

    def convicted(self, operator: Address, fault: Fault) -> bool:
        """Whether two words of a party convicted it since the trial began."""
        proven = self.network.follower.state.proven
        fresh = [one for subject, one in proven.items() if subject not in self.proven_before]
        return any(one.convict == operator and Fault(one.fault) is fault for one in fresh)

    async def wait_for_the_end(self) -> None:
        """Whatever the row says must come."""
        row = self.row
        if row.outcome in {CONVICTED, "node missing"}:
            await self.until(lambda: self.case_outcome() is not None, "the end of a case")
            outcome = self.case_outcome()
            assert outcome is not None
            self.note_end(outcome.name.lower().replace("_", " "))
        elif row.outcome == SCHEDULER_CONVICTED:
            await self.until(self._unanswered, "the end of a summons")
            self.note_end(SCHEDULER_CONVICTED)
        elif row.outcome == UNPAID:
            await self.until(self._passed_on, "the end of a summons")
            self.note_end(UNPAID if self.entry.paid is None else "paid")
        elif row.outcome == FAILED:
            await self.until(lambda: self.entry.phase is Phase.FAILED, "a failed order")
            self.note_end(FAILED)
        else:
            await self.until(lambda: PHASES.get(self.entry.phase) == row.outcome, row.outcome)
            self.note_end(PHASES[self.entry.phase])

    def _passed_on(self) -> bool:
        """The check of every segment was summoned and that was answered, not with a whole check: nobody is owed."""
        asked = [one for one in self.summons() if one.state.kind is SummonsKind.CHECK]
        answered = len(asked) == len(self.network.plan.ends) and all(one.answered for one in asked)
        return answered and self.entry.phase is Phase.REFUSED_CHECK

    def _unanswered(self) -> bool:
        return any(one.answered is False for one in self.summons())

    async def settle(self) -> None:
        """Until everything about these orders is paid: windows pass where only they are awaited."""
        ours = {bytes(one) for one in self.orders}
        until = time.monotonic() + SETTLE_SECONDS
        wound = False
        while time.monotonic() < until:
            entries = [self.client.session.journal.entry(one) for one in self.orders]
            left = [
                one for one in entries if one.paid is None and one.phase not in NEVER_PAID and not self.is_payer_gone
            ]
            if not left and self.word_arrived() and not open_work(self.network, ours):
                return
            if not wound and all(one.due is not None for one in left) and not self._live():
                wound = True
                await self.network.wind(self.client.session.parameters.lag + 2)
            await asyncio.sleep(LOOK_SECONDS)

    def word_arrived(self) -> bool:
        """Whether the scheduler holds the newest word of the client's tab: it is told some time after it was signed."""
        word = self.client.session.books.record(self.client.tab).voucher
        return (
            self.is_payer_gone
            or word is None
            or spent_with_scheduler(self.network).get(self.client.tab, 0) >= word.message.spent
        )

    def _live(self) -> bool:
        state = self.network.follower.state
        return any(one.live for one in state.cases.values()) or any(
            one.answered is None for one in state.summons.values()
        )

    # ---- who was what

    def name_parts(self) -> None:
        """Parts by party name, in the order of the notes."""
        names, parts = self.accountant.names, self.found.parts
        for segment, node in enumerate(self.nodes):
            parts.setdefault(names[node], []).append(INFERENCER if segment == 0 else f"{INFERENCER} {segment}")
        for drawn in self.verifiers[:1]:
            for number, node in enumerate(dict.fromkeys(drawn)):
                parts.setdefault(names[node], []).append(verifier(number))
        parts["scheduler"] = [SCHEDULER]


Script = Callable[[Trial], Awaitable[None]]


async def play(network: Network, accountant: Accountant, row: Row, script: Script | None) -> Finding:
    """One row, whatever breaks in it."""
    found, begun = Finding(row), time.monotonic()
    trial = Trial(network, accountant, row, found)
    try:
        async with asyncio.timeout(TRIAL_SECONDS * 1.5), trial.stack:
            if row.client == NEW_CLIENT:
                await _meet_somebody(trial)
            before = await accountant.count()
            trial.proven_before = frozenset(network.follower.state.proven)
            if script is None:
                await trial.ask_until_served()
                await trial.wait_for_the_end()
            else:
                await script(trial)
            await trial.settle()
            trial.name_parts()
            found.change = (await accountant.count()).since(before)
            _examine(trial)
    except Exception as error:  # noqa: BLE001 - one trial that breaks must not hide the others
        told = f" (the client was told: {found.said})" if found.said else ""
        found.broken.append(f"broke: {type(error).__name__}: {error}{told}")
        found.broken += [f"{child.name} printed last:\n{child.tail(LINES_SHOWN)}" for child in network.children]
    found.wall = time.monotonic() - begun
    return found


async def _meet_somebody(trial: Trial) -> None:
    """A client of this row alone."""
    name = f"client of {trial.row.name}"
    client = await trial.stack.enter_async_context(joined(trial.network, name))
    trial.network.clients[NEW_CLIENT] = client
    trial.accountant.meet(client.key.address, NEW_CLIENT)
    trial.stack.callback(trial.network.clients.pop, NEW_CLIENT)


def _examine(trial: Trial) -> None:
    """Everything that contradicts the registry."""
    found, row, network = trial.found, trial.row, trial.network
    if trial.orders:
        found.judged = [one for one in network.notes.seen(trial.order) if not one["cheats"]]
        journal = trial.client.session.journal
        # Of every order, as what was paid: one that was not what the row is about may have been summoned, too.
        asked = [one.state for one in network.follower.state.summons.values()]
        found.deposits = sum(one.deposit for one in asked if one.order in trial.orders)
        found.paid = trial.paid_before + sum(journal.entry(one).paid or 0 for one in trial.orders)
    if found.outcome != row.outcome:
        told = f"; the client was told {found.said!r}"
        found.broken.append(f"the outcome is {found.outcome!r}, not {row.outcome!r}{told}")
    if row.says not in found.said:
        found.broken.append(f"the client was told {found.said!r}, not of {row.says!r}")
    found.broken += _wrong_verdicts(found, row)
    if row.outcome in FALLEN or (trial.orders and trial.entry.phase is Phase.FAILED):
        found.advanced = paid_work(network, {bytes(one) for one in trial.orders})
    found.broken += _losses(trial)


def _wrong_verdicts(found: Finding, row: Row) -> list[str]:
    if row.caught_by not in {"verdict: states", "verdict: tokens"}:
        return []
    said = {_caught_by(one) for one in found.judged if one["segment"] == 0}
    return [] if said == {row.caught_by} else [f"honest verifiers' checks say {said}, not {row.caught_by}"]


def _caught_by(one: dict[str, Any]) -> str:
    if one["states"] > one["state_cut"]:
        return "verdict: states"
    wrong = one.get("tokens", 0.0) > one.get("token_cut", 1.0) or not one.get("end", True)
    return "verdict: tokens" if wrong else "nothing"


def _losses(trial: Trial) -> list[str]:
    """Who lost money though nobody said so, and whether money went or came."""
    found, row = trial.found, trial.row
    broken, change = [], found.change.wealth
    costs = {row.client: found.paid + found.deposits, SCHEDULER: found.advanced}
    for party, amount in change.items():
        parts = found.parts.get(party, [party])
        allowed = -costs.get(party, 0) - sum(trial.asked.get(party, {}).values())
        if amount < allowed and not set(parts) & set(row.losers):
            broken.append(f"{party} ({', '.join(parts)}) is honest and lost {-amount} wei, {allowed - amount} too many")
    for part in row.losers:
        holders = [party for party, parts in found.parts.items() if part in parts]
        if holders and not any(change[one] < 0 for one in holders):
            broken.append(f"{part} lost nothing")
    if sum(change.values()) + found.change.burnt:
        broken.append(f"{sum(change.values()) + found.change.burnt} wei came from nowhere or are gone")
    return broken
