"""Asking a scheduler what the verifiers of a check signed, where it did not say so by itself."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from troth.protocol.errors import ProtocolError
from troth.protocol.market.state import State
from troth.protocol.types import Address, Hash32
from troth.protocol.wire_market import CHECKS_PATH, SPOKEN_LIMIT, Informed, Inquire
from troth.transport.channel import Channel, ChannelPatience
from troth.transport.errors import OverlayError
from troth.transport.identity import Operator

PATIENCE = ChannelPatience(connect=5.0, request=20.0, frame=2 * SPOKEN_LIMIT)
_log = logging.getLogger(__name__)


class Inquirer(Protocol):
    """The seam to the scheduler."""

    async def ask(self, scheduler: Address, order: Hash32, segment: int) -> bytes | None:
        """Spoken as canonical JSON; None: it does not say."""


class ChannelInquirer:
    """Asks at the endpoint that the registry knows; a connection for each question, since there are few."""

    def __init__(self, operator: Operator, state: Callable[[], State]) -> None:
        self._operator = operator
        self._state = state

    async def ask(self, scheduler: Address, order: Hash32, segment: int) -> bytes | None:
        """Spoken as canonical JSON; None: it does not say."""
        party = self._state().parties.get(scheduler)
        if party is None or not party.endpoint.startswith("https://"):
            return None
        channel = Channel(
            party.endpoint, party.tls_key_hash, self._operator, scheduler, patience=PATIENCE, path=CHECKS_PATH
        )
        try:
            frame = await channel.request(Inquire(order, segment))
        except (OverlayError, ProtocolError, OSError) as error:
            _log.warning("%s does not say what verifiers signed: %s", scheduler, error)
            return None
        finally:
            await channel.close()
        return bytes(frame.payload) if isinstance(frame.header, Informed) else None
