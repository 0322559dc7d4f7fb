"""JSON-RPC over HTTP, with typed errors and a bounded retry.

Answers stay plain JSON, which ``decoding`` turns into our own types: no middleware and no attribute dictionaries cost
time on ten thousand logs.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from typing import Any

import aiohttp

from troth.chain.errors import ChainUnavailable, RpcRefused, without_credentials
from troth.chain.retries import attempts_of
from troth.chain.waiting import LIMIT_VARIABLE, told_of, waiting_limit

ATTEMPTS = 4
"""Tries of an idempotent request before ChainUnavailable, within the limit of ``waiting``: their pauses take 1.4 s."""

ANSWER_LIMIT = 256 << 20
"""Bytes of one answer, unpacked; ten thousand logs have a twentieth. A node that goes on does not take all memory."""

_BUSY_CODE = -32005


def _reason(error: Exception) -> str:
    """Why there is no connection, as the system says it: "Connection refused", "Name or service not known"."""
    cause = getattr(error, "os_error", error)
    number = getattr(cause, "errno", None)
    if isinstance(number, int) and number > 0:
        return os.strerror(number)
    return getattr(cause, "strerror", None) or type(error).__name__


def _may_pass(error: Exception) -> bool:
    return isinstance(error, ChainUnavailable) or (isinstance(error, RpcRefused) and error.code == _BUSY_CODE)


class Rpc:
    """One node; whatever is asked of it may be repeated: reads, and sending one same signed transaction."""

    def __init__(self, url: str, *, timeout: float | None = None, attempts: int = ATTEMPTS) -> None:
        """``timeout``: seconds for one answer; by default all that a request may take with its repetitions."""
        self.place = without_credentials(url)
        if not url.startswith(("http://", "https://")):
            raise ChainUnavailable("The RPC address must be http or https", self.place, "Correct --rpc.")
        self._attempts = attempts
        self._url = url
        self._limit = waiting_limit()
        self._timeout = self._limit if timeout is None else timeout
        self._numbers = itertools.count(1)
        self._session: aiohttp.ClientSession | None = None

    async def request(self, method: str, *parameters: object) -> Any:
        """The ``result`` of a call; RpcRefused for an error object, ChainUnavailable when no attempt got an answer."""
        failures: list[ChainUnavailable | RpcRefused] = []
        try:
            with told_of(self.place, self._limit):
                async with asyncio.timeout(self._limit):
                    async for attempt in attempts_of(_may_pass, most=self._attempts):
                        with attempt:
                            return await self._noted(failures, method, parameters)
        except TimeoutError as error:
            # Over in the pause before a repetition, it was not silence that took the time.
            told = [one for one in failures if not isinstance(one.__cause__, TimeoutError)]
            raise (told[-1] if told else self._silent(method, self._limit)) from error
        raise AssertionError("the last failure is raised")

    async def _noted(
        self, failures: list[ChainUnavailable | RpcRefused], method: str, parameters: tuple[object, ...]
    ) -> Any:
        try:
            return await self._in_time(method, parameters)
        except (ChainUnavailable, RpcRefused) as error:
            failures.append(error)
            raise

    async def _in_time(self, method: str, parameters: tuple[object, ...]) -> Any:
        """One answer. After half of the time it is asked for once more beside the first request, which goes on.

        A connection that a router has forgotten never answers, and another one does; a slow node answers the first.
        """
        asking = {asyncio.ensure_future(self._once(method, parameters))}
        try:
            answered, _ = await asyncio.wait(asking, timeout=self._timeout / 2)
            if not answered:
                asking.add(asyncio.ensure_future(self._once(method, parameters)))
            while True:
                answered, left = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
                good = [one for one in answered if one.exception() is None]
                if good or not left:
                    return (good or list(answered))[0].result()
                asking = left
        finally:
            for one in asking:
                one.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    async def _once(self, method: str, parameters: tuple[object, ...]) -> Any:
        body = {"jsonrpc": "2.0", "id": next(self._numbers), "method": method, "params": parameters}
        try:
            try:
                content = await self._answer_to(method, body)
            except (aiohttp.ServerDisconnectedError, ConnectionError):
                # The other end had closed a connection that was kept.
                content = await self._answer_to(method, body)
            answer = json.loads(content)
        except TimeoutError as error:
            raise self._silent(method, self._timeout) from error
        except aiohttp.ClientResponseError as error:
            raise self._unavailable(f"The chain node answered {method} with HTTP status {error.status}") from error
        except (aiohttp.ClientError, ConnectionError) as error:
            raise self._unavailable(f"The chain node cannot be reached: {_reason(error)}") from error
        except (ValueError, RecursionError) as error:
            raise self._unavailable(f"The answer to {method} is no JSON") from error
        if not isinstance(answer, dict) or ("error" not in answer and "result" not in answer):
            raise self._unavailable(f"The answer to {method} is no JSON-RPC")
        if answer.get("error") is not None:
            raise self._refusal(method, answer["error"])
        return answer["result"]

    async def _answer_to(self, method: str, body: dict[str, object]) -> bytes:
        async with self._open().post(self._url, json=body, allow_redirects=False) as response:
            response.raise_for_status()
            found = bytearray()
            async for piece in response.content.iter_any():
                found += piece
                if len(found) > ANSWER_LIMIT:
                    raise self._unavailable(f"The answer to {method} has more than {ANSWER_LIMIT} bytes")
            return bytes(found)

    def _unavailable(self, what: str) -> ChainUnavailable:
        return ChainUnavailable(what, self.place, "Check that the node runs and that --rpc names it; then repeat.")

    def _silent(self, method: str, seconds: float) -> ChainUnavailable:
        remedy = (
            "Check that the node is well and that --rpc names it; then repeat. For one that is only slow, give more "
            f"seconds: troth --chain-timeout 60, or {LIMIT_VARIABLE}=60."
        )
        return ChainUnavailable(f"The chain node did not answer {method} within {seconds:g} s", self.place, remedy)

    def _refusal(self, method: str, error: Any) -> RpcRefused:
        if not isinstance(error, dict):
            return RpcRefused(self.place, method, 0, str(error)[:200], None)
        code = error.get("code")
        message = str(error.get("message", "no message"))[:500]
        return RpcRefused(self.place, method, code if isinstance(code, int) else 0, message, error.get("data"))

    async def close(self) -> None:
        """Close the HTTP connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        """Opened at the first request, in the event loop that makes it. A request on a connection that was kept costs
        0.3 ms of processor time, on one of its own 1.1 ms; a node's follower makes several a second."""
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=self._timeout))
        return self._session
