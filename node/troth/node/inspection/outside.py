"""What others see of this node: whether schedulers reach it, why they do not choose it, and what their clocks say.

Schedulers are asked over the pinned endpoints that the chain names, by `GET /v1/nodes/{operator}`. They tell what came
of their own attempts to connect; nobody is dialled because of the question.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Annotated

import httpx
import msgspec

from troth.node.configuration import NodeConfiguration
from troth.protocol.amounts import COIN
from troth.protocol.market.state import Party, State
from troth.protocol.market.types import Role
from troth.protocol.types import Address
from troth.transport.errors import OverlayError
from troth.transport.health import HealthFinding
from troth.transport.https import pinned_client
from troth.transport.identity import load_identity

CLOCK_SECONDS = 30.0
"""Half of what the channel tolerates between two clocks."""
MOST_SCHEDULERS = 16
ANSWER_SECONDS = 8.0
TRIED_AGAIN_SECONDS, PAUSE = 24.0, 4.0
"""Within how long a scheduler tries a node again that was away, and seconds between two questions."""
UNREACHED = "it cannot be reached"
"""How a scheduler begins to say that it has no connection."""
NO_TAB = "this scheduler has no tab"
"""How it begins to say that it has not paid into a tab for this node, which it does by itself within blocks."""
ANSWER_BYTES = 64 * 1024
CALL_GAS = 59_000
"""Of the call that a node sends most: to redeem one voucher."""
LEAST_DAYS = 7.0
DAY = 86_400.0

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_Words = Annotated[str, msgspec.Meta(max_length=1000)]
LEAST_CALLS = 10
"""A node needs some when a scheduler is late: a claim, answers to objections, its settlement."""


class _SeenByScheduler(msgspec.Struct, frozen=True):
    """A scheduler's answer; other fields are left alone."""

    connected: bool
    drawn: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    chosen: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    why: Annotated[list[_Words], msgspec.Meta(max_length=16)]
    failure: _Words = ""
    note: _Words = ""


@dataclass(frozen=True, slots=True)
class SchedulerWord:
    """What one scheduler said, or why it said nothing. ``ahead``: seconds by which this clock is before its clock."""

    scheduler: Address
    seen: _SeenByScheduler | None
    ahead: float | None
    failure: str = ""

    @property
    def name(self) -> str:
        """The beginning of its address."""
        return self.scheduler[:8]


async def ask_schedulers(state: State, operator: Address) -> list[SchedulerWord]:
    """The word of every scheduler that takes orders, at most sixteen, all asked at once."""
    found = [one for one in state.parties.values() if one.role is Role.SCHEDULER and not one.exit_block]
    return list(await asyncio.gather(*(_ask(one, operator) for one in found[:MOST_SCHEDULERS])))


async def ask_once_tried(state: State, operator: Address, patience: float) -> list[SchedulerWord]:
    """The same, asked again while none of them is connected and has a tab: they tried a node that has just started
    before it was up, and pay into a tab once they see it on chain.

    Args:
        patience: seconds for which it is asked again.
    """
    give_up = time.monotonic() + patience
    while True:
        words = await ask_schedulers(state, operator)
        seen = [word.seen for word in words if word.seen is not None]
        if not seen or any(map(_has_settled_in, seen)) or time.monotonic() + PAUSE > give_up:
            return words
        await asyncio.sleep(PAUSE)


def _has_settled_in(seen: _SeenByScheduler) -> bool:
    """Whether a scheduler's word is more than that this node is new to it."""
    return seen.connected and not any(why.startswith(NO_TAB) for why in seen.why)


async def _ask(scheduler: Party, operator: Address) -> SchedulerWord:
    name = scheduler.operator
    try:
        async with (
            asyncio.timeout(ANSWER_SECONDS),
            pinned_client(scheduler.endpoint, scheduler.tls_key_hash, ANSWER_SECONDS) as client,
            client.stream("GET", f"/v1/nodes/{operator}") as response,
        ):
            ahead, body = _ahead(response.headers.get("date", "")), bytearray()
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > ANSWER_BYTES:
                    return SchedulerWord(name, None, ahead, "its answer is too long")
            if response.status_code != httpx.codes.OK:
                return SchedulerWord(name, None, ahead, f"it answers {response.status_code}")
            return SchedulerWord(name, msgspec.json.decode(bytes(body), type=_SeenByScheduler), ahead)
    except (httpx.HTTPError, httpx.InvalidURL, OverlayError, TimeoutError, *_UNREADABLE) as error:
        return SchedulerWord(name, None, None, f"{type(error).__name__}: {str(error)[:200]}")


def _ahead(date: str) -> float | None:
    try:
        return time.time() - parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


def outside_findings(
    configuration: NodeConfiguration, state: State, operator: Address, words: Sequence[SchedulerWord]
) -> list[HealthFinding]:
    """The endpoint on chain, who reaches it, and who has work for it."""
    party = state.parties.get(operator)
    if party is None or party.role is not Role.NODE:
        return []
    found = [_endpoint(configuration, party), _reached(configuration, words)]
    # Who leaves is in no group, and expects no work.
    expects = not party.exit_block and any(word.seen is not None for word in words)
    return [*found, _chosen(words)] if expects else found


def clock_finding(behind: float, words: Sequence[SchedulerWord]) -> HealthFinding:
    """This clock beside those of schedulers; where none answers, beside the newest block, which may only be too new.

    The median: one scheduler whose clock is wrong says nothing.
    """
    known = [word.ahead for word in words if word.ahead is not None]
    fix = "Synchronise it (chrony or systemd-timesyncd)."
    if not known:
        seen = f"newest block is {behind:.0f} s old by this clock; no scheduler said its time"
        return HealthFinding("clock", behind > -CLOCK_SECONDS, seen, f"This clock is behind. {fix}")
    ahead = statistics.median(known)
    whose = "a scheduler's clock" if len(known) == 1 else f"the clocks of {len(known)} schedulers"
    where = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} {whose}"
    # A block from the future shows a clock that is behind even where all schedulers' are.
    fine = abs(ahead) <= CLOCK_SECONDS and behind > -CLOCK_SECONDS
    side = "ahead" if ahead > CLOCK_SECONDS else "behind"
    return HealthFinding("clock", fine, where, f"This clock is {side}. {fix}")


def _endpoint(configuration: NodeConfiguration, party: Party) -> HealthFinding:
    fix = "Set listen.endpoint to what is on chain and restore tls/, or have the owner change the endpoint."
    if party.endpoint != configuration.endpoint:
        seen = f"node.toml {configuration.endpoint}, chain {party.endpoint}"
        return HealthFinding("endpoint", False, seen, fix)
    try:
        same = load_identity(configuration.tls_folder).spki_sha256 == party.tls_key_hash
    except OverlayError as error:
        return HealthFinding("endpoint", False, error.what, fix)
    seen = f"{party.endpoint} is on chain" if same else f"the TLS key in {configuration.tls_folder} is not on chain"
    return HealthFinding("endpoint", same, seen, fix)


def _reached(configuration: NodeConfiguration, words: Sequence[SchedulerWord]) -> HealthFinding:
    """Whether those who should connect to this node do."""
    said = [word for word in words if word.seen is not None]
    if not said:
        silent = "; ".join(f"{word.name}: {word.failure}" for word in words) or "there is no scheduler"
        return HealthFinding("outside", False, f"no scheduler can be asked: {silent}", "Check this machine's network.")
    there = [word for word in said if word.seen is not None and word.seen.connected]
    seen = f"{len(there)} of {len(said)} schedulers are connected to {configuration.endpoint}"
    failures = {word.seen.failure for word in said if word.seen is not None and word.seen.failure}
    shown = "".join(f"; {failure}" for failure in sorted(failures)[:2])
    fix = f"Start the node, and open port {configuration.port} in firewall and router to it; or see `way`."
    return HealthFinding("outside", bool(there), seen + ("" if there else shown), fix)


def _chosen(words: Sequence[SchedulerWord]) -> HealthFinding:
    """Which schedulers chose it, and what keeps the others."""
    lines, willing, reached = [], False, False
    for word in words:
        if word.seen is None:
            continue
        willing |= not word.seen.why
        reached |= not all(why.startswith(UNREACHED) for why in word.seen.why)
        because = "; ".join(word.seen.why) or word.seen.note
        shown = f"{word.name} drew it {word.seen.drawn} times and chose it {word.seen.chosen} times"
        lines.append(f"{shown}: {because}" if because else shown)
    fix = "Do as they say: `troth node ask FIRST:END PRICES`, `top-up` and `move` change what is on chain."
    if not reached:
        fix = "See `outside`: once a scheduler is connected, orders can come."
    return HealthFinding("work", willing, " | ".join(lines), fix)


def gas_finding(operator: Address, money: int, price: int, sent: int, days: float) -> HealthFinding:
    """For how many days the operator's coins last, at the price of gas now and the pace of calls so far.

    Args:
        price: wei that a gas costs now. sent: transactions of the operator. days: since the node was registered.
    """
    call = max(CALL_GAS * price, 1)
    pace = sent / days if days >= 1 else 0.0
    left = f"pays for {money // call:,} calls at {price / 10**9:.3g} gwei"
    enough = money >= LEAST_CALLS * call
    if pace > 0:
        lasts = money / (pace * call)
        left += f"; at {pace:.2g} a day for {lasts:,.0f} days"
        enough = enough and lasts >= LEAST_DAYS
    return HealthFinding("gas", enough, f"{COIN.show(money)} {left}", f"Send coins to {operator}.")
