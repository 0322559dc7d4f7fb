"""What `troth network probe` says of chains that lack something, played by a node that lacks it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from support.fake_chain import FakeChain, Refused, served
from support.market_logs import FACTORY, log_of, sample

from troth.chain.deployment import differing_headers
from troth.chain.errors import ChainUnavailable, WrongChain
from troth.chain.market import find_deployed
from troth.chain.rpc import Rpc
from troth.network.errors import ChainUnfit, CreationRefused
from troth.network.explaining import duration, explain
from troth.network.planning import CreationWish, pace_words, plan_creation
from troth.network.probing import HEAVIEST_CALL, ProbedChain, probe_chain
from troth.network.showing import chain_text, plan_text, problems_of
from troth.protocol.amounts import COIN
from troth.protocol.logs import EventLog
from troth.protocol.market.events import Deployed
from troth.protocol.market.shipped import BLOCK_SECONDS, DEMO, MAIN, broken_windows, stretched
from troth.protocol.types import address_from_bytes

PAYER = address_from_bytes(b"\x11" * 20)


async def probed(**lacks: Any) -> ProbedChain:
    async with served(FakeChain(**lacks)) as url:
        return await probe_chain(url)


def verdicts(chain: ProbedChain) -> dict[str, str]:
    return {one.name: one.verdict for one in chain.findings}


async def test_a_whole_chain_has_everything() -> None:
    chain = await probed()
    assert set(verdicts(chain).values()) == {"ok"}
    assert (chain.chain_id, chain.client, chain.block, chain.block_seconds) == (77, "fake/1", 400, 12.0)
    chain.require_fit()


@pytest.mark.parametrize(
    ("lacks", "name", "words"),
    [
        ({"p256": False}, "P256VERIFY", "EIP-7951"),
        ({"history": False}, "block hashes", "EIP-2935"),
        ({"randao": "constant"}, "RANDAO", "did not change"),
        ({"randao": "counter"}, "RANDAO", "a counter"),
        ({"headers": False}, "RANDAO", "not Ethereum's"),
        ({"blocks": 1}, "RANDAO", "wait for 2"),
        ({"code_limit": 12_288}, "code size", "max code size exceeded"),
        ({"gas_limit": 4_000_000}, "block gas", "largest contract needs"),
        ({"fees": False}, "fees", "eth_feeHistory"),
        ({"log_limit": 0}, "logs", "too wide"),
    ],
)
async def test_what_no_network_can_do_without_is_missing(lacks: dict[str, Any], name: str, words: str) -> None:
    chain = await probed(**lacks)
    found = {one.name: one for one in chain.unfit}
    assert words in found[name].found
    with pytest.raises(ChainUnfit, match="No network can work"):
        chain.require_fit()
    assert "no network can work on this chain" in chain_text(chain)


@pytest.mark.parametrize(
    ("lacks", "name", "words"),
    [
        ({"gas_limit": HEAVIEST_CALL - 1}, "block gas", "cases of classes with large courts"),
        ({"log_limit": 30}, "logs", "25 blocks at once"),
        ({"bls": False}, "BLS12-381", "nothing of Troth uses it"),
        ({"blobs": False}, "blobs", "nothing of Troth uses it"),
    ],
)
async def test_what_is_lacking_is_said_and_no_hindrance(lacks: dict[str, Any], name: str, words: str) -> None:
    chain = await probed(**lacks)
    assert verdicts(chain)[name] == "lacks"
    chain.require_fit()
    (line,) = [line for line in chain_text(chain).splitlines() if line.startswith(f"  lacks    {name}")]
    assert words in line


async def test_randomness_that_another_chain_lends_is_named() -> None:
    chain = await probed(randao="held")
    (found,) = [one for one in chain.findings if one.name == "RANDAO"]
    assert found.ok
    assert "kept for several blocks" in found.found


@pytest.mark.parametrize("randao", ["fresh", "held"])
async def test_two_headers_with_other_randomness_are_found(randao: str) -> None:
    async with served(FakeChain(randao=randao, blocks=403)) as url, connected(url) as rpc:
        newest, before = await differing_headers(rpc)
    assert (newest.number, before.number) == (403, 402 if randao == "fresh" else 399)
    assert newest.randao != before.randao


async def test_a_chain_without_randomness_is_named_before_money_is_spent() -> None:
    async with served(FakeChain(randao="constant")) as url, connected(url) as rpc:
        with pytest.raises(WrongChain, match="did not change in 64 blocks"):
            await differing_headers(rpc)


async def test_a_deployment_is_found_on_a_node_that_limits_ranges_of_logs() -> None:
    events = {120: sample(Deployed, 3), 321: sample(Deployed, 40)}
    ranges: list[tuple[int, int]] = []

    def logs(parameters: list[Any]) -> list[Any]:
        first, last = (int(parameters[0][name], 16) for name in ("fromBlock", "toBlock"))
        ranges.append((first, last))
        if last - first + 1 > 50:
            raise Refused("block range is too wide")
        return [shown(log_of(one), block) for block, one in events.items() if first <= block <= last]

    async with served(FakeChain(blocks=400, overridden={"eth_getLogs": logs})) as url:
        with pytest.raises(WrongChain, match="2 deployments"):
            await find_deployed(url, FACTORY)
        answered = [one for one in ranges if one[1] - one[0] < 50]
        assert [block for first, last in answered for block in range(first, last + 1)] == list(range(401))
        ranges.clear()
        found = await find_deployed(url, FACTORY, events[120].contracts.bank, 100)
    assert (found.meta.block, found.contracts) == (120, events[120].contracts)
    assert max(last for first, last in ranges if last - first < 50) < 200


async def test_a_chain_node_of_another_chain_is_named_with_its_chain() -> None:
    async with served(FakeChain(blocks=40, overridden={"eth_chainId": lambda _: "0x4d"})) as url:
        with pytest.raises(WrongChain, match=r"on chain 77, since block 9: .*asked at") as refused:
            await find_deployed(url, FACTORY, None, 9)
    assert url in str(refused.value.value)
    assert "--rpc or in the configuration's [chain]" in refused.value.remedy


def shown(log: EventLog, block: int) -> dict[str, Any]:
    """A log as a node shows it."""
    return {
        "address": log.address,
        "topics": ["0x" + topic.hex() for topic in log.topics],
        "data": "0x" + log.data.hex(),
        "blockNumber": hex(block),
        "blockHash": "0x" + "77" * 32,
        "transactionHash": "0x" + "78" * 32,
        "logIndex": "0x0",
    }


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Rpc]:
    rpc = Rpc(url, timeout=10)
    yield rpc
    await rpc.close()


async def test_a_node_that_answers_nonsense_is_no_chain() -> None:
    chain = FakeChain(overridden={"eth_getBlockByNumber": lambda parameters: [1, 2]})
    async with served(chain) as url:
        with pytest.raises(ChainUnavailable, match="malformed block"):
            await probe_chain(url)


async def test_the_plan_says_what_it_costs_and_what_stands_in_the_way(tmp_path: Any) -> None:
    wish = CreationWish("mine", MAIN, tmp_path / "network.json")
    poor = FakeChain(overridden={"eth_getBalance": lambda parameters: hex(10**15)})
    async with served(poor) as url:
        plan = await plan_creation(url, wish, PAYER)
    # A base fee and a tip of one gwei each: what is paid now, and where the base fee doubles.
    assert (plan.cost, plan.most) == (plan.gas * 2 * 10**9, plan.gas * 3 * 10**9)
    assert 39_000_000 < plan.gas < 45_000_000
    assert len(plan.steps) == 14
    (problem,) = problems_of(wish, plan)
    assert "more for gas" in problem
    text = plan_text(wish, plan, [], dry=True)
    assert "50 gwei" in text
    assert "5 ether" in text
    assert "10 min (50 blocks)" in text
    assert "mend this first" in text
    wish.output.write_text("")
    assert any("already" in one for one in problems_of(wish, plan))


async def test_an_asset_that_is_no_token_is_refused(tmp_path: Any) -> None:
    wish = CreationWish("mine", replace(MAIN, asset=PAYER), tmp_path / "network.json")
    async with served(FakeChain()) as url:
        with pytest.raises(CreationRefused, match="no ERC-20"):
            await plan_creation(url, wish, None)


def test_times_are_a_persons() -> None:
    shown = [duration(seconds) for seconds in (0.25, 40, 90, 3_600, 90_000, 604_800)]
    assert shown == ["0.25 s", "40 s", "1 min 30 s", "1 h", "1 d 1 h", "7 d"]


def test_every_parameter_is_explained() -> None:
    told = {one.name: one.value for one in explain(MAIN, BLOCK_SECONDS, COIN)}
    assert set(told) == set(MAIN.__slots__)
    assert told["unbonding"] == "7 d (50,400 blocks)"
    assert told["seasoning"] == "7 d (50,400 blocks)"


@pytest.mark.parametrize("seconds", [1, 2, 5, 12, 20])
def test_windows_that_are_stretched_last_as_long(seconds: int) -> None:
    made = stretched(MAIN, seconds)
    assert broken_windows(made) == ()
    assert made.lookahead == MAIN.lookahead
    assert made.unbonding * seconds == pytest.approx(MAIN.unbonding * 12, rel=0.01)
    assert pace_words(made, seconds, seconds) == ""


def test_a_pace_that_the_windows_were_not_made_for_is_said() -> None:
    assert "--block-seconds 2" in pace_words(MAIN, 2.0, 12.0)
    assert pace_words(MAIN, 12.3, 12.0) == ""
    assert pace_words(MAIN, 0.0, 12.0) == ""
    assert pace_words(DEMO, 1.0, 12.0) == ""
    assert "a RANDAO can still be proven" in broken_windows(stretched(MAIN, 0.25))
