"""A chain node in this process, over HTTP, that has or lacks what a test wants; its headers hash as Ethereum's do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import rlp

from troth.network.probing import BLS12_G1ADD, HISTORY, P256VERIFY
from troth.protocol.hashing import keccak256


class Refused(Exception):
    """The node answers with an error object."""


@dataclass
class FakeChain:
    """What the chain has. `randao`: fresh, constant, counter, or held for five blocks at a time."""

    chain_id: int = 77
    blocks: int = 400
    seconds: int = 12
    p256: bool = True
    history: bool = True
    randao: str = "fresh"
    headers: bool = True
    code_limit: int = 24_576
    gas_limit: int = 36_000_000
    fees: bool = True
    log_limit: int = 1 << 40
    bls: bool = True
    blobs: bool = True
    asked: list[str] = field(default_factory=list)
    overridden: dict[str, Any] = field(default_factory=dict)

    def answer(self, method: str, parameters: list[Any]) -> Any:
        """The result of a request; raises Refused."""
        self.asked.append(method)
        if method in self.overridden:
            return self.overridden[method](parameters)
        return getattr(self, method)(*parameters)

    def eth_chainId(self) -> str:
        return hex(self.chain_id)

    def web3_clientVersion(self) -> str:
        return "fake/1"

    def eth_blockNumber(self) -> str:
        return hex(self.blocks)

    def eth_getBlockByNumber(self, tag: str, full: bool) -> dict[str, Any]:
        del full
        return self.block(self.blocks if tag == "latest" else int(tag, 16))

    def eth_feeHistory(self, *parameters: Any) -> dict[str, Any]:
        if not self.fees:
            raise Refused("the method eth_feeHistory does not exist")
        return {"baseFeePerGas": [hex(10**9)] * 6, "reward": [[hex(10**9)]] * 5}

    def eth_getLogs(self, wanted: dict[str, str]) -> list[Any]:
        if int(wanted["toBlock"], 16) - int(wanted["fromBlock"], 16) + 1 > self.log_limit:
            raise Refused("block range is too wide")
        return []

    def eth_call(self, call: dict[str, str], tag: str) -> str:
        del tag
        if "to" not in call:
            size = int(call["data"][4:10], 16)
            if size > self.code_limit:
                raise Refused("max code size exceeded")
            return "0x" + "00" * size
        if call["to"] == P256VERIFY:
            return "0x" + "1".rjust(64, "0") if self.p256 else "0x"
        if call["to"] == HISTORY:
            return str(self.block(int(call["data"], 16))["hash"]) if self.history else "0x"
        if call["to"] == BLS12_G1ADD:
            return "0x" + "00" * 128 if self.bls else "0x"
        raise Refused("execution reverted")

    def block(self, number: int) -> dict[str, Any]:
        """A block as a node shows it."""
        values = {"fresh": keccak256(b"%d" % number), "constant": bytes(32), "held": keccak256(b"%d" % (number // 5))}
        randao = values.get(self.randao, number.to_bytes(32, "big"))
        fields: dict[str, bytes | int] = {
            "parentHash": bytes(32),
            "sha3Uncles": bytes(32),
            "miner": bytes(20),
            "stateRoot": bytes(32),
            "transactionsRoot": bytes(32),
            "receiptsRoot": bytes(32),
            "logsBloom": bytes(256),
            "difficulty": 0,
            "number": number,
            "gasLimit": self.gas_limit,
            "gasUsed": 0,
            "timestamp": 1_700_000_000 + number * self.seconds,
            "extraData": b"",
            "mixHash": randao,
            "nonce": bytes(8),
            "baseFeePerGas": 10**9,
            "withdrawalsRoot": bytes(32),
        } | ({"blobGasUsed": 0, "excessBlobGas": 0} if self.blobs else {})
        raw = [one.to_bytes((one.bit_length() + 7) // 8) if isinstance(one, int) else one for one in fields.values()]
        name = keccak256(rlp.encode(raw)) if self.headers else keccak256(b"of another kind %d" % number)
        shown = {key: hex(value) if isinstance(value, int) else "0x" + value.hex() for key, value in fields.items()}
        return shown | {"hash": "0x" + name.hex(), "transactions": []}


@asynccontextmanager
async def served(chain: FakeChain) -> AsyncIterator[str]:
    """The chain behind a URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(next(line for line in head.split("\r\n") if line.startswith("content-length")).split(":")[1])
        request = json.loads(await reader.readexactly(length))
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            answer["result"] = chain.answer(request["method"], request["params"])
        except Refused as error:
            answer["error"] = {"code": -32000, "message": str(error)}
        body = json.dumps(answer).encode()
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
