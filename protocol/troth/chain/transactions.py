"""Signed transactions of one chain: fees, nonces, sending, receipts.

A key's nonce is read from the node under a lock each time, and a transaction that was not sent has used none up: so
two tasks of one process never take the same nonce, and a failed send leaves no gap behind it. A node that is moving a
transaction from its pool into a block may give its nonce out again: it is asked once more then. A transaction that the
node forgets while its receipt is awaited, in a reorganisation or a full pool, is handed in again as it was signed. One
that the base fee has outgrown is signed again under its nonce, with higher fees up to the cap: every later call of its
key would wait behind it, and some have deadlines. Either of the two may be mined, and only one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import statistics
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import rlp  # type: ignore[import-untyped]

from troth.chain import decoding
from troth.chain.errors import (
    ChainRejected,
    ChainUnavailable,
    GasTooDear,
    RpcRefused,
    TransactionDropped,
    TransactionTimeout,
)
from troth.chain.keystore import Key
from troth.chain.records import Fees, TransactionReceipt
from troth.chain.retries import attempts_of
from troth.chain.rpc import Rpc
from troth.protocol.amounts import COIN
from troth.protocol.calls import Call
from troth.protocol.contract_errors import ContractError, decode_error
from troth.protocol.hashing import keccak256
from troth.protocol.typed_data import sign_digest
from troth.protocol.types import Address, Hash32, address_to_bytes

log = logging.getLogger(__name__)

FEE_CAP_VARIABLE = "TROTH_MAX_FEE"
"""The most that a unit of gas may cost, such as 200gwei; `troth --max-fee` sets it."""

FEE_CAP = 1_000 * 10**9
"""Wei per gas without that: more than networks ask in their dearest hours. A chain node that lies about the fees of
others would otherwise have tips paid that empty the account."""

GAS_MARGIN_PERCENT = 20
"""Added to the estimate: the state may change between estimate and block."""

PRIORITY_FLOOR = 1_000_000
"""Wei per gas offered to the block producer when recent blocks paid nothing."""

NONCE_ATTEMPTS = 4
"""How often a transaction is signed anew because another one took its nonce."""

SEND_ATTEMPTS = 3
"""How often a call is sent whose transaction another one replaced."""

NONCE_LOOKS = 6
"""How often a node is asked for a nonce, a tenth of a second apart, while it names one that this process has used."""

RECEIPT_INTERVAL = 0.1
"""Seconds between two looks for a receipt at first; it doubles up to one second."""

RESEND_INTERVAL = 2.0
"""Seconds between two looks whether the node still knows a transaction that is not mined."""

KEPT = 256
"""Signed transactions kept for handing them in again."""

_DYNAMIC_FEE = b"\x02"
"""The type of a transaction that names a maximal fee and a tip (EIP-2718, EIP-1559)."""

_NONCE_TAKEN = ("nonce too low", "replacement transaction underpriced", "transaction underpriced")
_OUTBID = re.compile(r"fee.*(too low|less than)", re.IGNORECASE)
_SENT_ALREADY = ("already known", "already imported", "known transaction")
Explain = Callable[[bytes], ContractError]
"""What the data of a revert says."""
Keep = Callable[[bytes], None]
"""Writes a signed transaction down before it is sent, so that ``resume`` can go on after a kill."""


def fee_cap() -> int:
    """The most wei that this process pays for a unit of gas; raises AmountError for one that cannot be read."""
    named = os.environ.get(FEE_CAP_VARIABLE)
    return COIN.parse(named) if named else FEE_CAP


@dataclass(slots=True)
class _Sending:
    """A call under its nonce: the newest form that was signed, and the hashes of all of them, the first one first.

    ``again`` signs it with other fees; None where a caller keeps what is signed, and goes on with exactly that.
    """

    raw: bytes
    fees: Fees | None
    again: Callable[[Fees], bytes] | None
    hashes: list[Hash32]


class Transactions:
    """Sends for any number of keys over one ``Rpc``."""

    def __init__(self, rpc: Rpc, chain_id: int, explain: Explain = decode_error) -> None:
        self._rpc = rpc
        self._explain = explain
        self._chain_id = chain_id
        self._locks: defaultdict[Address, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._sent: OrderedDict[Hash32, _Sending] = OrderedDict()
        self._next: dict[Address, int] = {}

    async def fees(self) -> Fees:
        """Fees for one of the next blocks: twice the base fee, and the median tip of the last ones (EIP-1559).

        The median of the blocks' medians: who makes one block can fill it with tips that it pays to itself.

        Raises GasTooDear where the next block would cost more than the cap; the headroom above is cut at it.
        """
        base, priority = await self._market()
        cap = fee_cap()
        if base + priority > cap:
            what = f"Gas costs {(base + priority) / 10**9:,.6g} gwei, more than the cap of {cap / 10**9:,.6g} gwei"
            place = f"base fee {base / 10**9:,.6g} gwei, tip {priority / 10**9:,.6g} gwei, says {self._rpc.place}"
            remedy = f"Wait, check the chain node, or raise the cap: troth --max-fee 2000gwei, or {FEE_CAP_VARIABLE}."
            raise GasTooDear(what, place, remedy)
        return Fees(min(2 * base + priority, cap), priority)

    async def _market(self) -> tuple[int, int]:
        """The next block's base fee, and the tip that is paid now."""
        history = await self._rpc.request("eth_feeHistory", hex(5), "latest", [50])
        try:
            base = decoding.quantity(history["baseFeePerGas"][-1])
            tips = [decoding.quantity(tip) for block in history.get("reward") or () for tip in block]
        except (KeyError, IndexError, TypeError) as error:
            raise decoding.malformed("fee history", history) from error
        return base, max(PRIORITY_FLOOR, statistics.median_low(tips or [0]))

    async def estimate(self, call: Call, sender: Address, to: Address | None) -> int:
        """Gas of a call with the margin; ChainRejected if it would revert in the next block.

        The pending block counts, not the newest: the contract demands that a sample or a settlement comes at least one
        block after the commitments, and so it does even if sent at once.
        """
        try:
            gas = await self._rpc.request("eth_estimateGas", message(call, sender, to), "pending")
        except RpcRefused as error:
            raise as_rejection(call.function, error, sender, self._explain, value=call.value) from error
        return decoding.quantity(gas) * (100 + GAS_MARGIN_PERCENT) // 100

    async def send(
        self, call: Call, key: Key, to: Address | None, gas: int | None = None, *, keep: Keep | None = None
    ) -> Hash32:
        """Sign and send; the transaction's hash. ChainRejected if it would revert, so that no gas is spent.

        What is signed is given to ``keep`` before it is sent, each time anew if another program takes the nonce.
        """
        async with self._locks[key.address]:
            fees, nonce = await asyncio.gather(self.fees(), self._nonce(key.address))
            limit = await self.estimate(call, key.address, to) if gas is None else gas
            try:
                async for attempt in attempts_of(lambda error: isinstance(error, _NonceTaken), most=NONCE_ATTEMPTS):
                    with attempt:
                        if attempt.num > 1:
                            nonce = max(await self._nonce(key.address), nonce + 1)
                        again = partial(signed, call, key, to, (self._chain_id, nonce, limit))
                        raw = again(fees)
                        if keep is not None:
                            keep(raw)
                        self._remember(_Sending(raw, fees, None if keep else again, [_hash_of(raw)]))
                        transaction = await self._send_signed(raw)
                        self._next[key.address] = nonce + 1
                        return transaction
            except RpcRefused as error:
                # An estimate asks for no money; that there is none for the gas shows only here.
                raise as_rejection(call.function, error, key.address, self._explain, value=call.value) from error
            except _NonceTaken as error:
                what = f"Another program takes the nonces of {key.address} faster than this one"
                remedy = "Let one process alone send with this key."
                raise ChainUnavailable(what, self._rpc.place, remedy) from error
        raise AssertionError("the last failure is raised")

    async def execute(
        self, call: Call, key: Key, to: Address | None, timeout: float, gas: int | None = None
    ) -> TransactionReceipt:
        """Send and wait for the receipt; anew if another program with this key has taken the transaction's nonce."""
        async for attempt in attempts_of(lambda error: isinstance(error, TransactionDropped), most=SEND_ATTEMPTS):
            with attempt:
                if attempt.num > 1:
                    log.warning("sending again, since another program with this key has taken the nonce")
                return await self.wait(await self.send(call, key, to, gas), 1, timeout)
        raise AssertionError("the last failure is raised")

    async def _nonce(self, sender: Address) -> int:
        """The next one by the node's word, which holds in the end also where it is one that was used: it may have
        forgotten a transaction for good."""
        for looks_left in reversed(range(NONCE_LOOKS)):
            count = decoding.quantity(await self._rpc.request("eth_getTransactionCount", sender, "pending"))
            if not looks_left or count >= self._next.get(sender, 0):
                break
            await asyncio.sleep(RECEIPT_INTERVAL)
        return count

    def _remember(self, sending: _Sending) -> None:
        self._sent[sending.hashes[0]] = sending
        if len(self._sent) > KEPT:
            self._sent.popitem(last=False)

    async def _send_signed(self, raw: bytes) -> Hash32:
        transaction = _hash_of(raw)
        try:
            await self._rpc.request("eth_sendRawTransaction", decoding.hexadecimal(raw))
        except RpcRefused as error:
            text = error.message.lower()
            if any(phrase in text for phrase in _SENT_ALREADY) or await self._is_known(transaction):
                return transaction
            if any(phrase in text for phrase in _NONCE_TAKEN):
                raise _NonceTaken from error
            raise
        return transaction

    async def _is_known(self, transaction: Hash32) -> bool:
        found = await self._rpc.request("eth_getTransactionByHash", decoding.hexadecimal(transaction))
        return found is not None

    async def wait(self, transaction: Hash32, confirmations: int, timeout: float) -> TransactionReceipt:
        """The receipt once ``confirmations`` blocks, its own included, hold it or what took its place with higher fees.

        TransactionTimeout if that takes too long, TransactionDropped if it cannot happen any more.
        """
        give_up = time.monotonic() + timeout
        look_after = time.monotonic() + RESEND_INTERVAL
        interval = RECEIPT_INTERVAL
        while True:
            mined, found = await self._mined(transaction)
            if found is not None and await self._is_deep_enough(found, confirmations):
                await self._require_success(found, mined)
                return decoding.receipt(found)
            if time.monotonic() + interval > give_up:
                raise TransactionTimeout(transaction, timeout)
            if found is None and time.monotonic() > look_after:
                await self._hand_in_again(transaction)
                look_after = time.monotonic() + RESEND_INTERVAL
            await asyncio.sleep(interval)
            interval = min(2 * interval, 1.0)

    async def _mined(self, transaction: Hash32) -> tuple[Hash32, Any]:
        """Which form of a transaction is in a block, and its receipt; None for the latter if none is."""
        sending = self._sent.get(transaction)
        for one in [transaction] if sending is None else sending.hashes:
            found = await self._rpc.request("eth_getTransactionReceipt", decoding.hexadecimal(one))
            if found is not None:
                return one, found
        return transaction, None

    async def resume(self, raw: bytes, timeout: float) -> TransactionReceipt | None:
        """The receipt of a transaction that was signed earlier, perhaps never sent: it is handed in as it is.

        None if it failed, if another one has its nonce, or if it offers too little by now, so that the node does not
        take it: another one may be signed then, and whichever of the two is mined takes the nonce of both. Raises
        TransactionTimeout if it is not mined in time.
        """
        transaction = _hash_of(raw)
        self._remember(_Sending(raw, None, None, [transaction]))
        try:
            if await self._rpc.request("eth_getTransactionReceipt", decoding.hexadecimal(transaction)) is None:
                await self._send_signed(raw)
            return await self.wait(transaction, 1, timeout)
        except RpcRefused as error:
            if _OUTBID.search(error.message) is None:
                raise
            return None
        except (_NonceTaken, ChainRejected, TransactionDropped):
            # It may have been mined between the question and the second sending.
            found = await self._rpc.request("eth_getTransactionReceipt", decoding.hexadecimal(transaction))
            return decoding.receipt(found) if found and decoding.quantity(found.get("status")) == 1 else None

    async def _hand_in_again(self, transaction: Hash32) -> None:
        """If the node has forgotten it and this process has signed it: the same bytes, so it cannot count twice. If it
        offers less than the next block asks: the same call under the same nonce, with higher fees."""
        sending = self._sent.get(transaction)
        if sending is None or await self._outbid(sending) or await self._knows_any(sending):
            return
        try:
            await self._send_signed(sending.raw)
        except _NonceTaken as error:
            # A node may show a transaction nowhere for the moment in which it is moved from its pool into a block.
            await asyncio.sleep(RESEND_INTERVAL)
            if not await self._knows_any(sending):
                raise TransactionDropped(transaction) from error
        except RpcRefused as error:
            if sending.again is None or _OUTBID.search(error.message) is None:
                raise
            # The base fee rose between the two questions, or is above the cap: it may fall again.

    async def _knows_any(self, sending: _Sending) -> bool:
        return any([await self._is_known(one) for one in reversed(sending.hashes)])

    async def _outbid(self, sending: _Sending) -> bool:
        """Offer more where the next block asks more than was offered; whether the node took it."""
        if sending.again is None or sending.fees is None:
            return False
        base, priority = await self._market()
        before = sending.fees
        if base + before.priority <= before.maximum:
            return False
        tip = max(priority, _raised(before.priority))
        fees = Fees(max(min(2 * base + tip, fee_cap()), _raised(before.maximum)), tip)
        if not base + tip <= fees.maximum <= fee_cap():
            return False
        raw = sending.again(fees)
        if _hash_of(raw) not in sending.hashes:
            # Noted first: should the answer be lost, this form may be mined all the same.
            sending.hashes.append(_hash_of(raw))
        try:
            await self._send_signed(raw)
        except _NonceTaken:
            # A form before was mined meanwhile, or this node asks more of what takes another one's place.
            sending.fees = fees
            return False
        except RpcRefused as error:
            log.info("the node does not take higher fees for a transaction that waits: %s", error)
            return False
        sending.raw, sending.fees = raw, fees
        return True

    async def _is_deep_enough(self, receipt: Any, confirmations: int) -> bool:
        if confirmations <= 1:
            return True
        head = decoding.quantity(await self._rpc.request("eth_blockNumber"))
        return head - decoding.quantity(receipt.get("blockNumber")) + 1 >= confirmations

    async def _require_success(self, receipt: Any, transaction: Hash32) -> None:
        """A mined transaction may have failed; running it again on the block before usually tells why."""
        if decoding.quantity(receipt.get("status")) == 1:
            return
        sent = await self._rpc.request("eth_getTransactionByHash", decoding.hexadecimal(transaction))
        replay = {name: sent[name] for name in ("from", "to", "value", "gas") if sent.get(name)} | {
            "data": sent["input"]
        }
        try:
            await self._rpc.request("eth_call", replay, hex(decoding.quantity(receipt["blockNumber"]) - 1))
        except RpcRefused as error:
            what = f"transaction {decoding.hexadecimal(transaction)}"
            rejection = as_rejection(what, error, explain=self._explain)
            if isinstance(rejection, ChainRejected):
                raise rejection from error
            # It failed whatever the node says of it now: out of gas, say, since its estimate was for another state.
            log.info("why %s failed is not known: %s", what, error)
        reason = ContractError("Reverted", {}, "The state changed before it was mined; read it anew and send again.")
        raise ChainRejected(f"transaction {decoding.hexadecimal(transaction)}", reason)


def signed(call: Call, key: Key, to: Address | None, numbers: tuple[int, int, int], fees: Fees) -> bytes:
    """A transaction of type 2 (EIP-1559) without an access list; ``numbers`` are chain, nonce and gas limit."""
    chain_id, nonce, gas = numbers
    place = b"" if to is None else address_to_bytes(to)
    fields = [chain_id, nonce, fees.priority, fees.maximum, gas, place, call.value, call.data, []]
    signature = sign_digest(keccak256(_DYNAMIC_FEE + rlp.encode(fields)), key.secret)
    r, s, parity = int.from_bytes(signature[:32]), int.from_bytes(signature[32:64]), signature[64] - 27
    return _DYNAMIC_FEE + bytes(rlp.encode([*fields, parity, r, s]))


def _hash_of(raw: bytes) -> Hash32:
    return Hash32(keccak256(raw))


def _raised(fee: int) -> int:
    """What nodes ask at least of a transaction that takes another one's place: an eighth more is enough for all."""
    return fee * 9 // 8 + 1


class _NonceTaken(Exception):
    """The node has another transaction with this nonce."""


def message(call: Call, sender: Address | None, to: Address | None) -> dict[str, str]:
    """The call object of ``eth_call`` and ``eth_estimateGas``."""
    fields = {"data": decoding.hexadecimal(call.data), "value": hex(call.value)}
    if sender is not None:
        fields["from"] = sender
    if to is not None:
        fields["to"] = to
    return fields


def as_rejection(
    function: str,
    error: RpcRefused,
    sender: Address | None = None,
    explain: Explain = decode_error,
    *,
    value: int = 0,
) -> Exception:
    """ChainRejected if the node's error is a revert, which ``explain`` reads, else the error itself.

    ``value``: what the call sends, in wei, for the remedy of an account that has too little.
    """
    returned = error.data.get("data") if isinstance(error.data, dict) else error.data
    if isinstance(returned, str) and returned.startswith("0x"):
        return ChainRejected(function, explain(decoding.data(returned)))
    text = error.message.lower()
    if "insufficient funds" in text or "insufficient balance" in text:
        needed = f"{COIN.show(value)}, and some coins for gas," if value else "coins for gas"
        remedy = f"Send {needed} to {sender or 'the sending address'}."
        return ChainRejected(function, ContractError("InsufficientFunds", {"message": error.message}, remedy))
    if "revert" in text:
        return ChainRejected(function, explain(b""))
    return error
