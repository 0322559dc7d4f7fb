"""The transport against a scripted node: what is repeated, what is not, and what each failure is called."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
import rlp  # type: ignore[import-untyped]

from troth.chain import retries, rpc, transactions, waiting
from troth.chain.errors import ChainUnavailable, GasTooDear, RpcRefused, without_credentials
from troth.chain.keystore import Key
from troth.chain.records import Fees
from troth.chain.rpc import Rpc
from troth.chain.transactions import FEE_CAP_VARIABLE, Transactions
from troth.protocol.amounts import AmountError
from troth.protocol.calls import Call

Answer = tuple[int, bytes]


def result(value: object) -> Answer:
    return 200, json.dumps({"jsonrpc": "2.0", "id": 0, "result": value}).encode()


def failure(code: int, message: str) -> Answer:
    return 200, json.dumps({"jsonrpc": "2.0", "id": 0, "error": {"code": code, "message": message}}).encode()


@asynccontextmanager
async def node(*answers: Answer | None, timeout: float | None = 60.0) -> AsyncIterator[tuple[Rpc, list[str]]]:
    """A node that gives these answers in turn; None stays silent."""
    pending, asked = list(answers), []
    silence = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(
            next(line for line in head.split("\r\n") if line.lower().startswith("content-length")).split(":")[1]
        )
        asked.append(json.loads(await reader.readexactly(length))["method"])
        answer = pending.pop(0)
        if answer is None:
            await silence.wait()
        else:
            status, body = answer
            writer.write(
                f"HTTP/1.1 {status} Answer\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body
            )
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = Rpc(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", timeout=timeout, attempts=3)
    try:
        yield client, asked
    finally:
        silence.set()
        await client.close()
        server.close()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.0)


@pytest.mark.parametrize(
    "first",
    [
        (503, b""),
        (429, b""),
        (200, b"<html>maintenance</html>"),
        (200, b"[]"),
        (200, b"{}"),
        failure(-32005, "limit exceeded"),
        pytest.param(None, marks=pytest.mark.slow),
    ],
    ids=["503", "429", "html", "list", "empty", "busy", "silent"],
)
async def test_passing_trouble_is_repeated(first: Answer | None) -> None:
    # Long enough for the second answer on a busy machine.
    async with node(first, result("0x1"), timeout=2.0 if first is None else 60.0) as (client, asked):
        assert await client.request("eth_chainId") == "0x1"
        assert asked == ["eth_chainId"] * 2


class SlowNode:
    """Each answer takes ``seconds``; those of connections in ``lost`` never come."""

    def __init__(self, seconds: float, lost: frozenset[int] = frozenset()) -> None:
        self.seconds, self.lost, self.asked = seconds, lost, 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        number, self.asked = self.asked, self.asked + 1
        await asyncio.sleep(3600 if number in self.lost else self.seconds)
        _, body = result("0x1")
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
        writer.close()


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "lost", "asked"), [(1.4, frozenset(), 2), (0.0, frozenset({0}), 2)])
async def test_a_slow_node_answers_the_first_request_and_a_lost_one_is_asked_again(
    seconds: float, lost: frozenset[int], asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that takes more than half of the limit for each answer was never heard: each request was given up."""
    monkeypatch.setenv(waiting.LIMIT_VARIABLE, "2.4")
    slow = SlowNode(seconds, lost)
    server = await asyncio.start_server(slow.answer, "127.0.0.1", 0)
    client = Rpc(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    try:
        assert await client.request("eth_chainId") == "0x1"
        assert slow.asked == asked
    finally:
        await client.close()
        server.close()


async def test_lasting_trouble_is_chain_unavailable() -> None:
    async with node((502, b""), (502, b""), (502, b"")) as (client, asked):
        with pytest.raises(ChainUnavailable, match=r"HTTP status 502: .*127\.0\.0\.1") as caught:
            await client.request("eth_blockNumber")
        assert len(asked) == 3
        assert "--rpc" in caught.value.remedy


@pytest.mark.parametrize("first", [(502, b""), failure(-32005, "limit exceeded")], ids=["502", "busy"])
async def test_a_limit_shorter_than_the_pauses_hides_no_reason(first: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "FIRST_PAUSE", 60.0)
    monkeypatch.setattr(retries, "LONGEST_PAUSE", 60.0)
    monkeypatch.setenv(waiting.LIMIT_VARIABLE, "2")
    async with node(first, result("0x1"), timeout=60.0) as (client, asked):
        with pytest.raises((ChainUnavailable, RpcRefused), match=r"HTTP status 502|limit exceeded"):
            await client.request("eth_blockNumber")
        assert len(asked) == 1


async def test_an_error_of_the_node_is_not_repeated() -> None:
    async with node(failure(-32602, "no such field")) as (client, asked):
        with pytest.raises(RpcRefused, match="no such field") as caught:
            await client.request("eth_call")
        assert caught.value.code == -32602
        assert "http://127.0.0.1" in str(caught.value.value), "which node it was"
        assert len(asked) == 1


async def test_requests_that_are_given_up_do_not_stop_later_ones() -> None:
    async with node(*[result("0x1")] * 60) as (client, _), node(result("0x2")) as (other, _):
        for yields in range(20):
            asking = [asyncio.create_task(client.request("eth_chainId")) for _ in range(3)]
            for _ in range(yields):
                await asyncio.sleep(0)
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        async with asyncio.timeout(60):
            assert await other.request("eth_chainId") == "0x2", "also of another client in the same process"


async def test_pauses_grow_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.2)
    pauses: list[float] = []
    monkeypatch.setattr(asyncio, "sleep", noted(pauses))
    with pytest.raises(ChainUnavailable):
        await failing(ChainUnavailable("away"), [])
    assert pauses == [0.2, 0.4, 0.8, 1.6, *[retries.LONGEST_PAUSE] * 4]


async def test_what_will_not_pass_is_not_tried_again() -> None:
    tried: list[int] = []
    with pytest.raises(KeyError):
        await failing(KeyError(), tried)
    assert tried == [1]


async def failing(error: Exception, tried: list[int]) -> None:
    async for attempt in retries.attempts_of(lambda one: isinstance(one, ChainUnavailable), most=9):
        with attempt:
            tried.append(attempt.num)
            raise error


def noted(pauses: list[float]) -> Callable[[float], Awaitable[None]]:
    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    return sleep


def test_urls_are_shown_without_credentials() -> None:
    assert (
        without_credentials("https://user:pass@node.example:8545/v3/secret?key=secret") == "https://node.example:8545"
    )
    assert without_credentials("http://[broken") == "an unreadable URL"
    assert without_credentials("nonsense") == "no scheme://no host"


async def test_an_answer_without_end_takes_no_memory_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "ANSWER_LIMIT", 1000)
    bomb = result("0x" + "00" * 5000)
    async with node(bomb, bomb, bomb) as (client, _):
        with pytest.raises(ChainUnavailable, match="more than 1000 bytes"):
            await client.request("eth_getLogs")


async def test_one_block_of_tips_that_its_maker_pays_to_itself_moves_no_tip() -> None:
    blocks = [[hex(3 * 10**9)]] * 4 + [[hex(10**18)]]
    async with node(result({"baseFeePerGas": ["0x1"] * 6, "reward": blocks})) as (client, _):
        assert (await Transactions(client, 31337).fees()).priority == 3 * 10**9


async def test_fees_end_at_a_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    gwei = 10**9
    dear = result({"baseFeePerGas": [hex(600 * gwei)], "reward": [[hex(gwei)]]})
    lie = result({"baseFeePerGas": ["0x1"], "reward": [[hex(10**18)]] * 5})
    monkeypatch.delenv(FEE_CAP_VARIABLE, raising=False)
    async with node(dear, lie, dear, dear) as (client, _):
        sends = Transactions(client, 31337)
        assert await sends.fees() == Fees(1_000 * gwei, gwei), "the headroom ends at the cap"
        with pytest.raises(GasTooDear, match="cap of 1,000 gwei"):
            await sends.fees()
        monkeypatch.setenv(FEE_CAP_VARIABLE, "500gwei")
        with pytest.raises(GasTooDear, match="cap of 500 gwei"):
            await sends.fees()
        monkeypatch.setenv(FEE_CAP_VARIABLE, "much")
        with pytest.raises(AmountError):
            await sends.fees()


class PoolNode:
    """In place of an Rpc: a node that takes every transaction, and says these numbers when it is asked for a nonce."""

    place = "http://node"

    def __init__(self, *counts: int) -> None:
        self.counts = list(counts)
        self.taken: list[int] = []

    async def request(self, method: str, *parameters: object) -> object:
        if method == "eth_feeHistory":
            return {"baseFeePerGas": ["0x1"], "reward": []}
        if method == "eth_getTransactionCount":
            return hex(self.counts.pop(0) if len(self.counts) > 1 else self.counts[0])
        assert method == "eth_sendRawTransaction", method
        raw = bytes.fromhex(str(parameters[0])[2:])
        self.taken.append(int.from_bytes(rlp.decode(raw[1:])[1]))
        return hex(0)


@pytest.mark.parametrize(
    ("counts", "used"),
    [
        ((7, 7, 7, 8), [7, 8]),  # it was moving the first one into a block
        ((7, 7), [7, 7]),  # it has forgotten the first one for good
        ((7, 9), [7, 9]),  # another program sends, too
    ],
    ids=["a moment", "for good", "another program"],
)
async def test_a_nonce_that_this_process_has_used_is_asked_for_again(
    counts: tuple[int, ...], used: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "RECEIPT_INTERVAL", 0.001)
    pool, key = PoolNode(*counts), Key.generate()
    sends = Transactions(pool, 31337)  # type: ignore[arg-type]
    for _ in used:
        await sends.send(Call("nothing", b""), key, key.address, 21_000)
    assert pool.taken == used


@pytest.mark.parametrize(
    ("url", "reason"),
    [("http://127.0.0.1:9", "Connection refused"), ("http://nowhere.invalid:8545", "Name or service not known")],
)
async def test_why_nothing_answers_is_said_in_the_system_s_words(url: str, reason: str) -> None:
    client = Rpc(url, timeout=10.0, attempts=1)
    try:
        with pytest.raises(ChainUnavailable) as caught:
            await client.request("eth_chainId")
    finally:
        await client.close()
    # A resolver that cannot be asked says another thing, and never a class of a library.
    assert reason in caught.value.what or "resolution" in caught.value.what
    assert "Error" not in caught.value.what


async def test_who_waits_is_told_once_and_the_end_has_one_limit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(waiting.LIMIT_VARIABLE, "0.5")
    monkeypatch.setattr(waiting, "NOTICE_SECONDS", 0.05)
    async with node(*[None] * 9, timeout=60.0) as (client, asked):
        for _ in range(2):
            with pytest.raises(ChainUnavailable, match=r"did not answer eth_call within 0\.5 s") as caught:
                await client.request("eth_call")
            assert "--chain-timeout" in caught.value.remedy
        assert len(asked) <= 2, "the limit ends a request, whatever one answer may take"
        assert [one.getMessage() for one in caplog.records if one.name == waiting.__name__] == [
            f"waiting for the chain node {client.place}, at most 0.5 s for each answer (--chain-timeout)"
        ]


async def test_a_node_that_stays_slow_is_named_ever_more_rarely_and_once_when_it_is_prompt(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An answer takes 10 s, for an hour; then all of them take a tenth, with one slow one among the first."""
    clock = [1_000.0]
    monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(waiting, "_slow", {})
    place = "http://slow"

    def request(seconds: float) -> None:
        with waiting.told_of(place, 20.0):
            if seconds > waiting.NOTICE_SECONDS:
                clock[0] += waiting.NOTICE_SECONDS
                waiting._tell(place, 20.0)
            clock[0] += seconds - min(seconds, waiting.NOTICE_SECONDS)
            clock[0] += 0.1

    with caplog.at_level(logging.INFO):
        for _ in range(360):
            request(10.0)
        for seconds in (0.1, 0.1, 10.0, *[0.1] * 2_000):
            request(seconds)
        request(10.0)
        assert waiting.slowness().startswith(f"waiting for the chain node {place}: ")
        clock[0] += waiting.PROMPT_SECONDS
        assert waiting.slowness() == "", "nobody asks it any more"
    said = [one.getMessage() for one in caplog.records]
    assert said[0] == f"waiting for the chain node {place}, at most 20 s for each answer (--chain-timeout)"
    assert said[1].startswith(f"still waiting for the chain node {place}: 3 answers in 33 s; ")
    assert [one.split(f"{place}: ")[1].split(";")[0] for one in said[2:-2]] == [
        "9 answers in 93 s",
        "21 answers in 215 s",
        "45 answers in 457 s",
        "93 answers in 942 s",
        "189 answers in 1911 s",
    ]
    assert said[-2] == f"the chain node {place} answers promptly again"
    assert said[-1] == said[0]


@pytest.mark.parametrize("given", ["0", "-1", "soon", "nan", "3601"])
def test_a_limit_that_is_no_time_is_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(waiting.LIMIT_VARIABLE, given)
    with pytest.raises(ChainUnavailable, match="must be seconds"):
        Rpc("http://127.0.0.1:1")
