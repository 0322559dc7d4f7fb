"""JSON-RPC over web3's HTTP provider, with typed errors and a bounded retry.

Only the provider is used: its answers stay plain JSON, which ``decoding`` turns into our own types, so that neither
web3's middleware nor its attribute dictionaries cost time on ten thousand logs.

web3's HTTP provider with a session of its own.

web3 keeps the sessions of all its providers behind one lock of the process, which a thread takes for the request that
waits. A request that is cancelled meanwhile leaves it locked for ever: no provider of the process gets an answer again.
Requests are cancelled here all the time, whenever a client leaves or a task's time is over.
"""

from __future__ import annotations

import json
from typing import Any

import aiohttp
from web3 import AsyncHTTPProvider

import troth.chain.keystore  # noqa: F401 - first: web3 imports eth_keyfile
from troth.chain.errors import ChainUnavailable, RpcRefused, without_credentials
from troth.chain.recursion import restore_recursion_limit
from troth.chain.retries import attempts_of

# isort: split


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


restore_recursion_limit()

ATTEMPTS = 4
"""Tries of an idempotent request before ChainUnavailable: with the pauses of ``retries``, 1.4 s and the timeouts."""

_BUSY_CODE = -32005


def _may_pass(error: Exception) -> bool:
    return isinstance(error, ChainUnavailable) or (isinstance(error, RpcRefused) and error.code == _BUSY_CODE)


class Rpc:
    """One node; whatever is asked of it may be repeated: reads, and sending one same signed transaction."""

    def __init__(self, url: str, *, timeout: float, attempts: int = ATTEMPTS) -> None:
        self.place = without_credentials(url)
        if not url.startswith(("http://", "https://")):
            raise ChainUnavailable("The RPC address must be http or https", self.place, "Correct --rpc.")
        self._attempts = attempts
        self._provider = Provider(
            url,
            request_kwargs={"timeout": aiohttp.ClientTimeout(total=timeout)},
            exception_retry_configuration=None,
        )

    async def request(self, method: str, *parameters: object) -> Any:
        """The ``result`` of a call; RpcRefused for an error object, ChainUnavailable when no attempt got an answer."""
        async for attempt in attempts_of(_may_pass, most=self._attempts):
            with attempt:
                return await self._once(method, parameters)
        raise AssertionError("the last failure is raised")

    async def _once(self, method: str, parameters: tuple[object, ...]) -> Any:
        try:
            answer = await self._provider.make_request(method, list(parameters))
        except TimeoutError as error:
            raise self._unavailable(f"The chain node did not answer {method} in time") from error
        except aiohttp.ClientResponseError as error:
            raise self._unavailable(f"The chain node answered {method} with HTTP status {error.status}") from error
        except aiohttp.ClientError as error:
            raise self._unavailable(f"The chain node cannot be reached: {type(error).__name__}") from error
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise self._unavailable(f"The answer to {method} is no JSON") from error
        if not isinstance(answer, dict) or ("error" not in answer and "result" not in answer):
            raise self._unavailable(f"The answer to {method} is no JSON-RPC")
        if answer.get("error") is not None:
            raise self._refusal(method, answer["error"])
        return answer["result"]

    def _unavailable(self, what: str) -> ChainUnavailable:
        return ChainUnavailable(what, self.place, "Check that the node runs and that --rpc names it; then repeat.")

    def _refusal(self, method: str, error: Any) -> RpcRefused:
        if not isinstance(error, dict):
            return RpcRefused(self.place, method, 0, str(error)[:200], None)
        code = error.get("code")
        message = str(error.get("message", "no message"))[:500]
        return RpcRefused(self.place, method, code if isinstance(code, int) else 0, message, error.get("data"))

    async def close(self) -> None:
        """Close the HTTP connections."""
        await self._provider.disconnect()
