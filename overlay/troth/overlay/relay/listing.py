"""A relay's part in the directory: it publishes itself, and relays to whom the newest list names."""

from __future__ import annotations

import asyncio
import logging
import time

from troth.overlay.circuits.descriptors import Directory
from troth.overlay.directory.descriptors import Signer
from troth.overlay.directory.fetching import DirectoryClient
from troth.overlay.directory.listing import Listing
from troth.overlay.directory.publishing import Published, keep_publishing, publish, require_enough
from troth.overlay.relay.configuration import Committee, RelayConfiguration
from troth.overlay.relay.initialisation import own_descriptor
from troth.overlay.relay.keys import load_operator_key
from troth.overlay.relay.switch import Switch
from troth.transport.identity import load_identity

log = logging.getLogger(__name__)

FILE = "directory.list"


class Listed:
    """Runs between `start` and `stop`, beside a listening switch."""

    def __init__(self, configuration: RelayConfiguration, committee: Committee, switch: Switch) -> None:
        self._configuration = configuration
        self._committee = committee
        self._switch = switch
        self._publishing: asyncio.Task[None] | None = None
        self.client = DirectoryClient.over(
            committee.rpc, committee.contract, configuration.folder / FILE, self._apply, committee.retry_seconds
        )

    def start(self) -> None:
        """Apply the kept list, follow, and publish."""
        self.client.start()
        committee = self._committee
        work = keep_publishing(self._publish, committee.publish_seconds, committee.retry_seconds)
        self._publishing = asyncio.create_task(work, name="publishing")

    async def stop(self) -> None:
        """Neither follow nor publish any longer."""
        if self._publishing is not None:
            self._publishing.cancel()
            await asyncio.gather(self._publishing, return_exceptions=True)
        await self.client.stop()

    def hurry(self) -> None:
        """Look for a newer list now."""
        self.client.hurry()

    def check(self) -> None:
        """Once a second: a list that has ended names nobody any more."""
        if self._switch.directory.relays and self.client.current() is None:
            log.warning("the directory has ended, and there is no newer one")
            self._switch.directory = Directory({}, {})

    def reasons(self) -> list[str]:
        """Why this relay is not ready; empty when it is."""
        if self.client.current() is not None:
            return []
        failure = self.client.failure
        return [f"there is no directory: {failure.what if failure else 'it has not come yet'}"]

    def _apply(self, listing: Listing) -> None:
        self._switch.directory = listing.directory()

    async def _publish(self) -> Published:
        configuration, committee = self._configuration, self._committee
        membership = await self.client.membership()
        signer = Signer(
            load_operator_key(configuration.operator_key),
            load_identity(configuration.tls_folder),
            membership.domain,
        )
        relay = own_descriptor(configuration.folder)
        descriptor = signer.relay(relay, committee.region, committee.bandwidth, int(time.time()))
        return require_enough(await publish(descriptor, membership))
