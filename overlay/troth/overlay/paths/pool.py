"""Circuits kept warm over disjoint paths: taken, replaced at once when one fails, renewed before they are old.

All state belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from random import Random, SystemRandom

from troth.chain.duty import Duty
from troth.overlay.circuits.circuit import Circuit
from troth.overlay.circuits.client import CircuitClient
from troth.overlay.directory.listing import Listing
from troth.overlay.paths.choice import Crowd, Path, choose
from troth.overlay.paths.errors import GuardsUnusable, NoCircuits, NoDisjointPaths
from troth.overlay.paths.guards import Guards
from troth.overlay.paths.pace import Attempts, CircuitPace
from troth.overlay.paths.slots import PooledCircuit, Slot
from troth.transport.errors import CircuitFailed, OverlayError

log = logging.getLogger(__name__)

HOPS = 3
"""Relays of each path."""
MORE_RELAYS = (
    "Nothing was sent. Wait until the directory lists more relays of other operators and networks; a command with "
    "--overlay off goes without them, and then whoever is asked sees your address."
)
"""What to do where the directory lists too few."""


@dataclass(frozen=True, slots=True)
class Status:
    """What a pool has: circuits live, of them held by somebody, and wanted; why there are not more, or empty."""

    live: int
    held: int
    wanted: int
    shortage: str


class CircuitPool:
    """Keeps `paths` + `spare` circuits.

    Args:
        client: builds them.
        listing: the list that is valid now; asked again every few seconds. Another one is another object.
        guards: who may be first.
        region: preferred, if enough relays are in it.
        pace: how often it tries.
        random: for choices and jitter.
    """

    def __init__(
        self,
        client: CircuitClient,
        listing: Callable[[], Listing],
        guards: Guards,
        *,
        paths: int = 4,
        spare: int = 2,
        region: str = "",
        pace: CircuitPace | None = None,
        random: Random | None = None,
    ) -> None:
        self._client = client
        self._listing = listing
        self._guards = guards
        self._region = region
        self._paths = paths
        self._pace = pace or CircuitPace()
        self._random = random or SystemRandom()
        self._slots = [Slot() for _ in range(paths + spare)]
        self._known: Listing | None = None
        self._crowd = Crowd((), 0)
        self._news = asyncio.Event()
        self._tending = Duty("building circuits", self._tend, every=self._pause)
        self._watchers: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._attempts = Attempts(self._pace, self._random, self._loop.time)
        self._last = "none was tried yet"
        self._shortage = ""
        self._closed = False

    @property
    def status(self) -> Status:
        """How it stands."""
        live = [slot for slot in self._slots if slot.current is not None]
        shortage = self._shortage if len(live) < len(self._slots) else ""
        return Status(len(live), sum(slot.held > 0 for slot in live), len(self._slots), shortage)

    def circuits(self) -> list[tuple[Circuit, bool]]:
        """Each circuit that can be handed out, and whether somebody holds it."""
        live = [slot.current for slot in self._slots if slot.current is not None]
        return [(member.circuit, member.held > 0) for member in live]

    # -- for users -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to build, and return; raises GuardsUnusable."""
        self.update(self._listing())
        self._tending.start()

    async def close(self) -> None:
        """End all circuits; whoever waits gets NoCircuits."""
        self._closed = True
        await self._tending.stop()
        tasks = [*(slot.task for slot in self._slots), *self._watchers]
        running = [task for task in tasks if task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for slot in self._slots:
            for member in slot.members:
                member.circuit.close()
            slot.members.clear()
        self._tell()

    async def take(self, count: int, seconds: float) -> list[Circuit]:
        """`count` live, pairwise disjoint circuits, held until each is released or replaced; raises NoCircuits.

        Circuits that somebody holds are preferred, so that spare ones stay spare. Two calls may give the same circuits,
        or a circuit and its successor, which may share relays. Where the directory itself lists too few relays for so
        many, NoCircuits is raised at once: it takes a new list, and not time.
        """
        if count > len(self._slots):
            raise NoCircuits(
                f"The pool keeps {len(self._slots)} circuits", f"{count} wanted", "Make the pool with more paths."
            )
        if len(self._ready()) < count:
            self._require_listed(count)
        try:
            async with asyncio.timeout(seconds):
                while len(live := self._ready()) < count:
                    await self._news.wait()
        except TimeoutError:
            raise self._too_few(len(live), count, seconds) from None
        self._random.shuffle(live)
        live.sort(key=lambda slot: (slot.held == 0, slot.wanting))
        return [self._hold(slot) for slot in live[:count]]

    async def replace(self, failed: Circuit, seconds: float) -> Circuit:
        """Let go of `failed` and hold another one: a spare at once, or the first that is built; raises NoCircuits.

        It is disjoint from all that the caller holds: one of the same place, or of a place that nobody holds. A circuit
        that still lives is taken for a bad one: nobody gets it any more, and its last two relays are left out for a
        while. `failed` is let go of also when NoCircuits is raised.
        """
        place = next((slot for slot in self._slots if any(one.circuit is failed for one in slot.members)), None)
        member = self._member(failed)
        if member is not None and member.live:
            member.retired = True
            self._blame(failed.path, CircuitFailed("proxy", len(failed.path), "its user had it replaced"))
        self.release(failed)
        try:
            async with asyncio.timeout(seconds):
                while not (free := [slot for slot in self._ready() if slot is place or slot.held == 0]):
                    await self._news.wait()
        except TimeoutError:
            raise self._too_few(0, 1, seconds) from None
        return self._hold(min(free, key=lambda slot: (slot.wanting, slot is not place)))

    def release(self, circuit: Circuit) -> None:
        """The caller uses it no more."""
        member = self._member(circuit)
        if member is None:
            return
        member.held = max(0, member.held - 1)
        if member.retired and member.held == 0:
            circuit.close()
        for slot in self._slots:
            slot.sweep()
        self._tell()

    def update(self, listing: Listing) -> None:
        """Another list is valid: circuits through relays that it does not name are renewed, then closed.

        Raises GuardsUnusable.
        """
        everyone = Crowd(listing.relays, listing.valid_after)
        self._guards.update(listing, everyone, len(self._slots))
        self._known = listing
        self._crowd = Crowd(listing.relays, self._guards.now(), region=self._region) if self._region else everyone
        for slot in self._slots:
            slot.not_before = 0.0
            slot.path = slot.path if slot.task else None
            for member in slot.members:
                member.stale = any(everyone.named(relay.name) != relay for relay in member.circuit.path)
        self._tending.hurry()

    # -- building --------------------------------------------------------------------------------------------------

    async def _tend(self) -> None:
        self._look()
        self._plan()
        self._begin()

    def _pause(self) -> float:
        if not any(slot.wanting for slot in self._slots):
            return self._pace.look
        chosen = any(slot.path is not None and slot.task is None for slot in self._slots)
        return min(self._attempts.pause(), 1 / self._pace.rate if chosen else self._pace.look)

    def _look(self) -> None:
        try:
            listing = self._listing()
            if listing is not self._known:
                self.update(listing)
        except OverlayError as error:
            self._note(error)

    def _plan(self) -> None:
        """Choose paths: for empty places together where that is possible, as one by one may lead to a dead end."""
        now = self._loop.time()
        waiting = [slot for slot in self._slots if slot.wanting and slot.path is None and slot.not_before <= now]
        empty = [slot for slot in waiting if not slot.members]
        live = sum(slot.current is not None for slot in self._slots)
        for together in (empty, empty[: max(0, self._paths - live)]):
            if len(together) > 1 and self._assign(together):
                break
        for slot in waiting:
            if slot.path is None and not self._assign([slot]):
                slot.not_before = now + self._attempts.pause()

    def _assign(self, slots: list[Slot]) -> bool:
        used = [path for slot in self._slots if slot not in slots for path in slot.paths()]
        usable = self._guards.usable(len(self._slots))
        guards = [guard for guard in usable if not self._attempts.resting(guard.name)]
        for avoid in self._attempts.avoided():
            try:
                paths = choose(self._crowd, guards, len(slots), hops=HOPS, used=used, avoid=avoid, random=self._random)
            except NoDisjointPaths as error:
                resting = len(usable) - len(guards)
                self._shortage = error.what + (f"; {resting} guards rest after failures" if resting else "")
                continue
            for slot, path in zip(slots, paths, strict=True):
                slot.path = path
            return True
        return False

    def _begin(self) -> None:
        for slot in self._slots:
            if slot.path is None or slot.task is not None:
                continue
            if not self._attempts.allowed(sum(other.task is not None for other in self._slots)):
                return
            slot.task = asyncio.create_task(self._build(slot, slot.path))

    async def _build(self, slot: Slot, path: Path) -> None:
        try:
            self._guards.trying(path[0].name)
            circuit = await self._client.build(path, self._pace.build)
            self._attempts.succeeded(path[0].name)
            self._watch(slot, slot.welcome(circuit))
            self._guards.reached(path[0].name)
        except CircuitFailed as failure:
            self._attempts.build_failed()
            self._blame(path, failure)
        except OverlayError as error:
            self._attempts.build_failed()
            self._note(error)
        finally:
            slot.task = slot.path = None
            self._tell()

    # -- watching --------------------------------------------------------------------------------------------------

    def _watch(self, slot: Slot, member: PooledCircuit) -> None:
        task = asyncio.create_task(self._until_its_end(slot, member))
        self._watchers.add(task)
        task.add_done_callback(self._watchers.discard)

    async def _until_its_end(self, slot: Slot, member: PooledCircuit) -> None:
        circuit = member.circuit
        while circuit.failure is None:
            pause = self._pace.ping * self._random.uniform(0.5, 1.5)
            try:
                async with asyncio.timeout(pause):
                    await circuit.ended.wait()
            except TimeoutError:
                # Users notice themselves; their traffic says more than a ping.
                if member.held == 0:
                    await self._test(circuit)
        self._blame(circuit.path, circuit.failure)
        slot.sweep()
        self._tell()

    async def _test(self, circuit: Circuit) -> None:
        with contextlib.suppress(CircuitFailed):
            try:
                async with asyncio.timeout(self._pace.answer):
                    await circuit.ping(len(circuit.path))
            except TimeoutError:
                await circuit.silence(self._pace.answer, self._pace.answer)

    def _blame(self, path: Path, failure: CircuitFailed) -> None:
        if failure.hop == "client":
            return
        if failure.position > 1:
            with contextlib.suppress(GuardsUnusable):
                self._guards.reached(path[0].name)
        self._note(failure)
        self._attempts.blame(path, failure)
        for slot in self._slots:
            # Chosen before this was known.
            slot.path = slot.path if slot.task else None

    def _note(self, error: OverlayError) -> None:
        log.debug("a path failed: %s", error)
        self._last = str(error)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _ready(self) -> list[Slot]:
        if self._closed:
            raise NoCircuits("The pool is closed")
        return [slot for slot in self._slots if slot.current is not None]

    def _hold(self, slot: Slot) -> Circuit:
        member = slot.current
        assert member is not None
        member.held += 1
        return member.circuit

    def _member(self, circuit: Circuit) -> PooledCircuit | None:
        return next((one for slot in self._slots for one in slot.members if one.circuit is circuit), None)

    def _require_listed(self, count: int) -> None:
        self._look()
        try:
            choose(self._crowd, self._guards.usable(len(self._slots)), count, hops=HOPS, random=self._random)
        except NoDisjointPaths as error:
            raise NoCircuits(error.what, f"{len(self._crowd.relays)} relays are listed", MORE_RELAYS) from error

    def _too_few(self, live: int, count: int, seconds: float) -> NoCircuits:
        shortage = f"; {self._shortage}" if self._shortage else ""
        failed = self._tending.trouble
        last = f"building circuits failed: {failed}" if failed else self._last
        return NoCircuits(
            f"{live} of {count} circuits were there after {seconds:g} s, and this failed last",
            last + shortage,
            "Try again later; see whether this machine is on line.",
        )

    def _tell(self) -> None:
        """Wake whoever waits for a circuit, and the tending."""
        self._news.set()
        self._news = asyncio.Event()
        self._tending.hurry()
