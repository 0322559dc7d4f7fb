"""web3's HTTP provider with a session of its own.

web3 keeps the sessions of all its providers behind one lock of the process, which a thread takes for the request that
waits. A request that is cancelled meanwhile leaves it locked for ever: no provider of the process gets an answer again.
Requests are cancelled here all the time, whenever a client leaves or a task's time is over.
"""

from __future__ import annotations

from typing import Any

import aiohttp

import troth.chain.keyfiles  # noqa: F401 - first: web3 imports eth_keyfile

# isort: split
from web3 import AsyncHTTPProvider


class Provider(AsyncHTTPProvider):  # type: ignore[misc]
    """Use it in one event loop. What `make_request` raises is aiohttp's, or TimeoutError."""

    _session: aiohttp.ClientSession | None = None

    async def make_request(self, method: str, params: list[object]) -> Any:
        """The node's answer as parsed JSON, with its result or its error."""
        body = self.encode_rpc_request(method, params)
        async with self._open().post(str(self.endpoint_uri), data=body, **self.get_request_kwargs()) as response:
            response.raise_for_status()
            return self.decode_rpc_response(await response.read())

    async def disconnect(self) -> None:
        """Close the connections; the next request opens new ones."""
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            # A connection a request: one that was kept may have been closed at the other end.
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))
        return self._session
