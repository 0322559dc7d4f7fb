"""What a chain has of what Troth needs, found by asking its node; nothing is sent.

Each probe runs the thing itself, in `eth_call` where it can: a node that claims a fork and lacks its precompile is
found. What a network cannot do without is `needed`; of the rest a probe says what will not work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from troth.chain import decoding
from troth.chain.errors import ChainUnavailable, RpcRefused
from troth.chain.headers import RawHeader, header_of
from troth.chain.rpc import Rpc
from troth.network.errors import ChainUnfit
from troth.protocol.bindings import MARKET_PARTS
from troth.protocol.market.addresses import creation_code
from troth.protocol.runtime_code import largest_code
from troth.protocol.types import ZERO_ADDRESS
from troth.transport.errors import visible

P256VERIFY = "0x" + "0" * 37 + "100"
P256_VECTOR = (
    "4cee90eb86eaa050036147a12d49004b6b9c72bd725d39d4785011fe190f0b4d"
    "a73bd4903f0ce3b639bbbf6e8e80d16931ff4bcf5993d58468e8fb19086e8cac"
    "36dbcd03009df8c59286b162af3bd7fcc0450c9aa81be5d10d312af6c66b1d60"
    "4aebd3099c618202fcfe16ae7770b0c49ab5eadf74b754204a3bb6060e44eff3"
    "7618b065f9832de4ca6ca971a7a1adc826d0f7c00181a5fb2ddf79ae00b4e10e"
)
"""A valid signature of EIP-7951's test vectors; contracts/market/Deployment.sol asks for the same one."""
HISTORY = "0x0000F90827F1C53a10cb7A02335B175320002935"
"""EIP-2935's contract of block hashes."""
BLS12_G1ADD = "0x" + "0" * 39 + "b"
BLS12_PAIR_OF_INFINITIES = "00" * 256
"""Two points at infinity, whose sum is one: 128 bytes of zeros (EIP-2537)."""

SAMPLED_HEADERS, LEAST_HEADERS = 8, 2
PACE_BLOCKS = 128
"""Blocks over which the chain's pace is measured."""
HEAVIEST_CALL = 15_000_000
"""Gas: no class may make a call of a case heavier than this."""
LOG_BLOCKS = 8_192
"""Blocks whose logs one request should give; where a node refuses, Troth asks for fewer at a time."""


@dataclass(frozen=True, slots=True)
class Probed:
    """What was found of one thing. ``ok``: it is there; ``needed``: without it no network works; ``lost``: what will
    not work without it, empty where nothing of Troth uses it."""

    name: str
    ok: bool
    needed: bool
    found: str
    lost: str = ""

    @property
    def verdict(self) -> str:
        """One word: ok, missing (needed), or lacks."""
        return "ok" if self.ok else "missing" if self.needed else "lacks"


@dataclass(frozen=True, slots=True)
class ProbedChain:
    """All that was found of a chain. ``block_seconds`` is 0 where it has too few blocks to say."""

    chain_id: int
    client: str
    block: int
    block_seconds: float
    findings: tuple[Probed, ...]

    @property
    def unfit(self) -> tuple[Probed, ...]:
        """What is missing that a network cannot do without."""
        return tuple(one for one in self.findings if one.needed and not one.ok)

    def require_fit(self) -> None:
        """Raise ChainUnfit where something needed is missing."""
        if self.unfit:
            what = "No network can work on this chain: " + "; ".join(f"{one.name}: {one.found}" for one in self.unfit)
            remedy = "Use a chain with Ethereum's Osaka rules; docs/how-to/networks.md says which were tried."
            raise ChainUnfit(what, f"chain {self.chain_id}", remedy)


async def probe_chain(url: str) -> ProbedChain:
    """Ask a node for everything. Raises ChainUnavailable if it does not answer at all."""
    rpc = Rpc(url)
    try:
        chain_id = decoding.quantity(await rpc.request("eth_chainId"))
        newest = await _block(rpc, "latest")
        number = decoding.quantity(newest.get("number"))
        client = visible(str(await _or_refusal(rpc, "web3_clientVersion"))[:80])
        probes: Sequence[Callable[[], Awaitable[Probed]]] = (
            lambda: _signatures(rpc),
            lambda: _history(rpc),
            lambda: _randomness(rpc, number),
            lambda: _code_size(rpc),
            lambda: _block_gas(newest),
            lambda: _fees(rpc),
            lambda: _log_range(rpc, number),
            lambda: _pairings(rpc),
            lambda: _blobs(newest),
        )
        findings = [await probe() for probe in probes]
        pace = await _pace(rpc, newest)
    finally:
        await rpc.close()
    return ProbedChain(chain_id, client, number, pace, tuple(findings))


async def _block(rpc: Rpc, tag: str) -> dict[str, Any]:
    found = await rpc.request("eth_getBlockByNumber", tag, False)
    if not isinstance(found, dict):
        raise decoding.malformed("block", found)
    return found


async def _or_refusal(rpc: Rpc, method: str, *parameters: object) -> Any:
    """A node's answer, or in its place why it gives none."""
    try:
        return await rpc.request(method, *parameters)
    except RpcRefused as error:
        return f"refused: {visible(error.message[:160])}"


async def _run(rpc: Rpc, to: str, data: str) -> str:
    return visible(str(await _or_refusal(rpc, "eth_call", {"to": to, "data": "0x" + data}, "latest"))[:1_000])


async def _signatures(rpc: Rpc) -> Probed:
    answer = await _run(rpc, P256VERIFY, P256_VECTOR)
    ok = answer == "0x" + "1".rjust(64, "0")
    found = "verifies a P-256 signature" if ok else f"no precompile at 0x100 (EIP-7951): {answer[:170]}"
    return Probed("P256VERIFY", ok, True, found, "draws by a scheduler's VRF cannot be checked on chain")


async def _history(rpc: Rpc) -> Probed:
    number = decoding.quantity(await rpc.request("eth_blockNumber"))
    if number < LEAST_HEADERS:
        found = f"only {number} blocks yet: wait for {LEAST_HEADERS}, then ask again"
        return Probed("block hashes", False, True, found, "a court's randomness cannot be proven")
    asked = number - 1
    expected = (await _block(rpc, hex(asked))).get("hash")
    answer = await _run(rpc, HISTORY, f"{asked:064x}")
    ok = answer == expected
    found = "knows old blocks' hashes" if ok else f"no contract of block hashes (EIP-2935): {answer[:170]}"
    return Probed("block hashes", ok, True, found, "a court's randomness cannot be proven")


async def _randomness(rpc: Rpc, newest: int) -> Probed:
    name, lost = "RANDAO", "a court cannot be drawn"
    if newest < LEAST_HEADERS:
        return Probed(name, False, True, f"only {newest} blocks yet: wait for {LEAST_HEADERS}, then ask again", lost)
    try:
        # Not genesis, which has none.
        headers = [header_of(await _block(rpc, hex(newest - back))) for back in range(min(SAMPLED_HEADERS, newest))]
    except ChainUnavailable:
        return Probed(name, False, True, "its headers are not Ethereum's: their fields do not hash to the block", lost)
    return _judged_randomness(name, lost, headers)


def _judged_randomness(name: str, lost: str, headers: Sequence[RawHeader]) -> Probed:
    values = list(dict.fromkeys(header.randao for header in headers))
    if len(values) == 1:
        return Probed(name, False, True, f"prevRandao did not change in {len(headers)} blocks", lost)
    alike = max(
        sum(a == b for a, b in zip(one, other, strict=True)) for one in values for other in values if one != other
    )
    if alike > 16:
        return Probed(name, False, True, "prevRandao is a counter, not randomness: values differ in few bytes", lost)
    if len(values) < len(headers):
        found = f"{len(values)} values in {len(headers)} blocks: it is another chain's, kept for several blocks"
        return Probed(name, True, True, found)
    return Probed(name, True, True, "changes with every block")


async def _code_size(rpc: Rpc) -> Probed:
    size = largest_code()
    # PUSH3 size, PUSH0, RETURN: creation of a contract of so many zeros.
    call = {"data": f"0x62{size:06x}5ff3", "from": ZERO_ADDRESS}
    answer = await _or_refusal(rpc, "eth_call", call, "latest")
    ok = isinstance(answer, str) and len(answer) == 2 + 2 * size
    found = (
        f"takes contracts of {size:,} bytes"
        if ok
        else f"refuses a contract of {size:,} bytes: {visible(str(answer)[:170])}"
    )
    return Probed("code size", ok, True, found, "the largest contract cannot be created")


def heaviest_creation() -> int:
    """Gas of the dearest transaction of a deployment, about."""
    return max(creation_gas(len(creation_code(part)), largest_code()) for part in MARKET_PARTS)


def creation_gas(creation_bytes: int, code_bytes: int) -> int:
    """About what it costs to create a contract through the factory: transaction, calldata, code, constructor."""
    return 21_000 + 32_000 + 16 * creation_bytes + 200 * code_bytes + 10 * creation_bytes + 130_000


async def _block_gas(newest: dict[str, Any]) -> Probed:
    limit, least = decoding.quantity(newest.get("gasLimit")), heaviest_creation()
    if limit < least:
        found = f"{limit:,} gas a block; the largest contract needs {least:,}"
        return Probed("block gas", False, True, found, "the contracts cannot be created")
    found = f"{limit:,} gas a block"
    return Probed("block gas", limit >= HEAVIEST_CALL, False, found, "cases of classes with large courts may not fit")


async def _fees(rpc: Rpc) -> Probed:
    history = await _or_refusal(rpc, "eth_feeHistory", hex(1), "latest", [50])
    ok = isinstance(history, dict) and bool(history.get("baseFeePerGas"))
    found = "has fees of EIP-1559" if ok else f"has no fee history: {visible(str(history)[:170])}"
    return Probed("fees", ok, True, found, "no transaction can be priced")


async def _log_range(rpc: Rpc, newest: int) -> Probed:
    """The longest range of blocks, up to ``LOG_BLOCKS``, whose logs the node gives at once."""
    blocks = min(LOG_BLOCKS, newest + 1)
    while blocks:
        span = {"address": HISTORY, "fromBlock": hex(newest - blocks + 1), "toBlock": hex(newest)}
        answer = await _or_refusal(rpc, "eth_getLogs", span)
        if isinstance(answer, list):
            break
        blocks //= 2
    ok = blocks == min(LOG_BLOCKS, newest + 1)
    if not blocks:
        return Probed(
            "logs", False, True, f"eth_getLogs is refused: {visible(str(answer)[:170])}", "events cannot be read"
        )
    found = f"gives logs of {blocks:,} blocks at once"
    return Probed("logs", ok, False, found, "following an old network begins slowly: many small requests")


async def _pairings(rpc: Rpc) -> Probed:
    answer = await _run(rpc, BLS12_G1ADD, BLS12_PAIR_OF_INFINITIES)
    ok = answer == "0x" + "00" * 128
    return Probed("BLS12-381", ok, False, "there" if ok else "not there (EIP-2537)", "")


async def _blobs(newest: dict[str, Any]) -> Probed:
    ok = newest.get("blobGasUsed") is not None
    return Probed("blobs", ok, False, "there" if ok else "not there (EIP-4844)", "")


async def _pace(rpc: Rpc, newest: dict[str, Any]) -> float:
    """Seconds from block to block, the first ones left out: genesis may be of another day. 0 with too few."""
    number = decoding.quantity(newest["number"])
    back = min(PACE_BLOCKS, number - 1)
    if back < 4:
        return 0.0
    before = await _block(rpc, hex(number - back))
    passed = decoding.quantity(newest.get("timestamp")) - decoding.quantity(before.get("timestamp"))
    return round(max(passed, 0) / back, 2)
