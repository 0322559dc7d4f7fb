"""An epoch's keys from the members together, without anybody's hand: deal, propose, sign, register.

Every member deals to all, again and again until each has taken it. Members then have turns, by the epoch's number: the
first whose turn it is asks who holds what, proposes the dealers that enough hold, gathers signatures and registers the
keys. One that is silent, or dead, is followed by the next after a while. The chain takes the first keys; two members
that propose at once do no harm.

Keys are made of all members' dealings, or, where one does not come in time, without it: a member that has no share is
missing when tickets are signed, and then one death fewer is borne. Whoever comes later gets its share of the keys: it
asks the others whose dealings they are made of, and these deal to it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from troth.chain.adapter import Chain
from troth.chain.deployment import submit
from troth.chain.duty import Duty
from troth.chain.errors import ChainError
from troth.chain.keystore import Key
from troth.committee import requests
from troth.committee.errors import CommitteeError, TicketsRefused
from troth.committee.tickets.keys import DealtShares, KeyProposal, TicketKeyMember, decode_body
from troth.committee.tickets.service import DEAL, DEALERS, HOLDINGS, PATHS, PROPOSE
from troth.overlay.directory.listing import CommitteeMembership
from troth.protocol.calls import Call
from troth.protocol.committee import threshold
from troth.protocol.errors import ProtocolError
from troth.protocol.tickets import messages
from troth.protocol.types import ZERO_HASH, Address, Hash32, address_to_bytes
from troth.transport.errors import OverlayError

log = logging.getLogger(__name__)

ASK_SECONDS = 20.0


@dataclass(eq=False)
class TicketTurns:
    """One member's turns.

    Args:
        poll: seconds between looks at the chain.
        patience: seconds that all members have to deal before keys are made without some, that each member before
            this one has to register keys, and between attempts to reach those that have no share of registered ones.
    """

    key: Key
    rpc: str
    member: TicketKeyMember
    membership: Callable[[], CommitteeMembership]
    chain: Chain
    poll: float
    patience: float
    _taken: dict[int, set[Address]] = field(default_factory=dict)
    _since: dict[int, float] = field(default_factory=dict)
    _handed: dict[int, float] = field(default_factory=dict)

    async def run(self) -> None:
        """For ever; what fails is tried again."""
        await Duty("keeping keys of tickets", self.turn, every=self.poll, longest=self.poll).run()

    async def turn(self) -> None:
        """One look: this epoch's keys and the next one's. What is too old is erased whatever comes after."""
        now = await self.chain.read(messages.epoch_now())
        await asyncio.to_thread(self.member.forget_before, now - 1)
        failures: list[ChainError | CommitteeError | ProtocolError] = []
        for epoch in (now, now + 1):
            try:
                await self._look(epoch)
            except (ChainError, CommitteeError, ProtocolError) as error:
                failures.append(error)
        for kept in (self._taken, self._since, self._handed):
            for epoch in [epoch for epoch in kept if epoch < now]:
                del kept[epoch]
        if failures:
            raise failures[0]

    async def _look(self, epoch: int) -> None:
        digest = await self.chain.read(messages.dealing_of(epoch))
        if digest != ZERO_HASH:
            await self._hand_on(epoch, digest)
            return
        await self._deal(epoch)
        since = self._since.setdefault(epoch, time.monotonic())
        waited = time.monotonic() - since - self._place(epoch) * self.patience
        if waited >= 0:
            await self._propose(epoch, whole=waited < self.patience)

    async def _hand_on(self, epoch: int, digest: Hash32) -> None:
        """Of registered keys: get this member's share where it has none, and give those of others that lack theirs."""
        if await asyncio.to_thread(self.member.share, epoch, digest) is None:
            await self._adopt(epoch, digest)
        asked = self.member.take_askers(epoch)
        self._taken.setdefault(epoch, set()).difference_update(asked)
        last = self._handed.get(epoch)
        if not asked and last is not None and time.monotonic() < last + self.patience:
            return
        self._handed[epoch] = time.monotonic()
        dealers = await asyncio.to_thread(self.member.dealers, epoch, digest)
        if dealers is not None and self.member.operator in {dealer for dealer, _ in dealers.dealers}:
            await self._deal(epoch)

    async def _adopt(self, epoch: int, digest: Hash32) -> None:
        """Ask the others whose dealings the keys are made of, and believe the first that names those of the chain."""
        for proposal in await self._dealers(epoch):
            try:
                await asyncio.to_thread(self.member.adopt, proposal, digest)
            except TicketsRefused as error:
                log.info("no share of the keys of epoch %d yet: %s", epoch, error)
                continue
            log.info("this member has its share of the keys of epoch %d, which others registered", epoch)
            return

    async def _dealers(self, epoch: int) -> list[KeyProposal]:
        """What others say, each once."""
        others = [one for one in self._operators() if one != self.member.operator]
        found = []
        for answer in set(await asyncio.gather(*(self._ask(one, DEALERS, b"", epoch) for one in others))) - {b""}:
            try:
                found.append(decode_body(answer, KeyProposal))
            except TicketsRefused as error:
                log.info("a member names no dealers of epoch %d: %s", epoch, error)
        return [one for one in found if one.epoch == epoch]

    def _operators(self) -> list[Address]:
        return sorted((one.operator for one in self.membership().members), key=address_to_bytes)

    def _place(self, epoch: int) -> int:
        """How many have their turn before this member."""
        operators = self._operators()
        return (operators.index(self.member.operator) - epoch) % len(operators)

    async def _deal(self, epoch: int) -> None:
        taken = self._taken.setdefault(epoch, set())
        operators = self._operators()
        if taken.issuperset(operators):
            return
        given = await asyncio.to_thread(self.member.deal, epoch, operators)
        mine = given.pop(self.member.operator)
        if self.member.operator not in taken:
            await asyncio.to_thread(self.member.take, self.member.operator, mine, operators)
            taken.add(self.member.operator)
        left = {operator: shares for operator, shares in given.items() if operator not in taken}
        answers = await asyncio.gather(*(self._give(operator, shares) for operator, shares in left.items()))
        taken.update(operator for operator, answer in zip(left, answers, strict=True) if answer)

    async def _give(self, operator: Address, shares: DealtShares) -> bytes:
        return await self._ask(operator, DEAL, msgspec.msgpack.encode(shares), shares.epoch)

    async def _propose(self, epoch: int, *, whole: bool) -> None:
        """Have keys signed and register them; ``whole``: only if every member holds every member's dealing."""
        operators = set(self._operators())
        needed = threshold(len(operators))
        holdings = await self._holdings(epoch)
        held = sum(set(one) == operators for one in holdings.values())
        if whole and held < len(operators):
            what = f"Of {len(operators)} members so many hold all dealings of epoch {epoch}"
            raise TicketsRefused(what, held, f"The others have {self.patience:g} s.")
        proposal = self.member.propose(epoch, holdings, needed)
        keys, own = await asyncio.to_thread(self.member.sign, proposal, needed)
        signatures = {self.member.operator: own} | await self._signatures(proposal)
        if len(signatures) < needed:
            log.info("%d of %d members signed the keys of epoch %d", len(signatures), needed, epoch)
            return
        if await self.chain.read(messages.dealing_of(epoch)) != ZERO_HASH:
            return
        chosen = sorted(signatures, key=address_to_bytes)[:needed]
        await self._send(messages.register_keys(keys, [signatures[operator] for operator in chosen]))
        log.info("the keys of tickets of epoch %d are registered, %d dealt", epoch, len(proposal.dealers))

    async def _send(self, call: Call) -> None:
        await submit(self.rpc, call, self.key, self.chain.contract)

    async def _holdings(self, epoch: int) -> dict[Address, dict[Address, Hash32]]:
        others = [one for one in self._operators() if one != self.member.operator]
        answers = await asyncio.gather(*(self._ask(one, HOLDINGS, b"", epoch) for one in others))
        found = {self.member.operator: self.member.holdings(epoch)}
        for operator, answer in zip(others, answers, strict=True):
            try:
                held = msgspec.msgpack.decode(answer, type=list[tuple[str, bytes]])
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                continue
            found[operator] = {Address(dealer): Hash32(digest) for dealer, digest in held}
        return found

    async def _signatures(self, proposal: KeyProposal) -> dict[Address, bytes]:
        """Those that are the member's own over the same keys; nonsense is left out."""
        body = msgspec.msgpack.encode(proposal)
        others = [one for one in self._operators() if one != self.member.operator]
        answers = await asyncio.gather(*(self._ask(one, PROPOSE, body, proposal.epoch) for one in others))
        found = {}
        for operator, answer in zip(others, answers, strict=True):
            if answer and self.member.is_signed_by(proposal, answer, operator):
                found[operator] = answer
            elif answer:
                log.warning("%s signed other keys for epoch %d", operator, proposal.epoch)
        return found

    async def _ask(self, operator: Address, kind: str, body: bytes, epoch: int) -> bytes:
        """A member's answer; empty where it gave none."""
        membership = self.membership()
        other = membership.member(operator)
        if other is None:
            return b""
        headers = requests.headers_of(kind, body, epoch, membership.domain, self.key.secret)
        try:
            return await requests.send(other, "/v1/tickets/" + PATHS[kind], body, headers, ASK_SECONDS)
        except OverlayError as error:
            log.info("%s gave no %s: %s", other.endpoint, kind, error)
            return b""
