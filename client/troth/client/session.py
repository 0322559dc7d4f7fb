"""One wallet at one scheduler: connected, with its view of the chain, ready to ask."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from troth.chain.adapter import Chain
from troth.chain.follower import EventFollower
from troth.chain.keystore import Key
from troth.client.chain_view import view
from troth.client.configuration import Configuration
from troth.client.connection import connection
from troth.client.errors import ConfigurationError, ModelUnavailable
from troth.client.home import Home
from troth.client.language import Language, LanguageCache, check_files
from troth.client.market import Offer, find_class, find_scheduler, offer_of, require_whole
from troth.client.ordering import Choices, SignedOrder, require_affordable, require_room, sign_order
from troth.client.receipts import Receipts, opened
from troth.client.scheduler_calls import SchedulerCalls
from troth.client.template import Message
from troth.overlay.paths.pool import CircuitPool
from troth.protocol.types import Address, Hash32


@dataclass(frozen=True, slots=True)
class Session:
    """Everything that asking needs; `pool` has the circuits, None without the overlay.

    `mode` is "scheduler", or "direct" where requests enter at a node that hosts the whole model.
    """

    chain: Chain
    follower: EventFollower
    api: SchedulerCalls
    offer: Offer
    language: Language
    receipts: Receipts
    pool: CircuitPool | None = None
    mode: str = "scheduler"

    @property
    def destination(self) -> str:
        """Whom requests are sent to: "scheduler" or "node"."""
        return "node" if self.mode == "direct" else "scheduler"

    def near(self, node: Address | None) -> Session:
        """The same session, whose requests enter at this node where that can be chosen; None: at any."""
        return self if node is None else replace(self, api=self.api.near(node))

    async def renewed(self) -> Session:
        """The same session with what the scheduler offers now; raises ModelUnavailable if that is no fair offer."""
        served = await self.api.classes()
        state = await self.follower.catch_up()
        identifier = self.offer.class_id
        if identifier not in served:
            raise ModelUnavailable("The scheduler no longer serves the class", "0x" + identifier.hex(), "Use another.")
        offer = offer_of(state, self.offer.scheduler, identifier, served[identifier])
        if self.mode == "direct":
            require_whole(offer)
        return replace(self, offer=offer)

    async def prepare(self, messages: Sequence[Message], choices: Choices, key: Key) -> SignedOrder:
        """A signed order for a conversation, checked against context, cost and balance; nothing is sent."""
        return await self.prepare_tokens(self.language.prompt_tokens(messages), choices, key)

    async def prepare_tokens(self, prompt: tuple[int, ...], choices: Choices, key: Key) -> SignedOrder:
        """The same for a prompt that is tokens already."""
        state = await self.follower.catch_up()
        require_room(prompt, choices, self.language.context)
        require_affordable(self.offer, state.escrow_of(key.address), choices)
        # One block back: the contract wants a reference that lies in the past when the order is opened.
        reference = max(self.follower.block - 1, 0)
        return sign_order(self.offer, prompt, self.language.end_tokens, choices, key, self.chain.domain, reference)


@asynccontextmanager
async def session(home: Home, configuration: Configuration) -> AsyncIterator[Session]:
    """Connect to the chain and to the scheduler, and load the model's checked tokenizer."""
    if configuration.direct:
        what = "Direct mode is there on tabs alone"
        raise ConfigurationError(what, "mode", "Use --factory, or go through the scheduler with --no-direct.")
    async with view(home, configuration) as (chain, follower):
        scheduler = find_scheduler(follower.state, configuration)
        async with connection(home, configuration, scheduler) as reached:
            api = reached.api
            served = await api.classes()
            identifier = find_class(follower.state, configuration, served)
            offer = offer_of(follower.state, scheduler, identifier, served[identifier])
            language = await load_language(home, api, offer.class_id, offer.model.architecture)
            with opened(home.receipts, chain.domain) as receipts:
                yield Session(chain, follower, api, offer, language, receipts, reached.pool, configuration.mode)


async def load_language(home: Home, api: SchedulerCalls, identifier: Hash32, architecture: str) -> Language:
    """The language side of a class's model, from the cache or from the scheduler, checked against the chain."""
    cache = LanguageCache(home.languages)
    files = cache.get(architecture)
    if files is None:
        files = await api.language(identifier)
        check_files(files, architecture)
        cache.put(architecture, files)
    return Language.load(files)
