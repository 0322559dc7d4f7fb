"""A real `troth client serve` process before a scheduler on tabs with toy nodes."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.client_network import ClientSide
from support.forked_program import ForkedProgram
from support.waiting import SECONDS, eventually

__all__ = [
    "MESSAGES",
    "MODEL",
    "QUESTION",
    "Gateway",
    "events",
    "eventually",
    "needed",
    "run_program",
    "serving_gateway",
]

MODEL = "toy"
QUESTION = "word7 word9 word11"
MESSAGES = [{"role": "user", "content": QUESTION}]


@dataclass
class Gateway:
    """The process, and what it printed for a shell."""

    side: ClientSide
    process: ForkedProgram
    base_url: str
    key: str
    errors: asyncio.Task[bytes]

    @property
    def root(self) -> str:
        return self.base_url.removesuffix("/v1")

    @property
    def port(self) -> int:
        return int(self.root.rpartition(":")[2])

    @property
    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=self.root,
            headers={"authorization": f"Bearer {self.key}"},
            timeout=SECONDS,
            trust_env=False,
            verify=False,
        )

    async def chat(self, **fields: Any) -> httpx.Response:
        """POST /v1/chat/completions."""
        async with self.client as client:
            body = {"model": MODEL, "messages": MESSAGES, "max_tokens": 4} | fields
            return await client.post("/v1/chat/completions", json=body)

    async def get(self, path: str) -> httpx.Response:
        async with self.client as client:
            return await client.get(path)

    async def receipt(self, identifier: str) -> dict[str, Any]:
        """The receipt once it is known whether the answer is paid."""
        async with asyncio.timeout(SECONDS):
            while True:
                found = (await self.get(f"/v1/receipts/{identifier}")).json()
                if found["outcome"] != "pending":
                    return dict(found)
                await asyncio.sleep(0.1)

    async def stop(self) -> bytes:
        """SIGTERM, and what it wrote to standard error."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(self.process.wait(), SECONDS)
        return await self.errors


@asynccontextmanager
async def serving_gateway(side: ClientSide, *options: object, port: int = 0) -> AsyncIterator[Gateway]:
    """`troth client serve`, ready."""
    process = await side.forked("serve", "--port", port, "--keep-alive", 0.3, *options)
    errors = asyncio.create_task(process.stderr.read())
    lines = [(await asyncio.wait_for(process.stdout.readline(), SECONDS)).decode() for _ in range(2)]
    assert lines[0].startswith("export OPENAI_BASE_URL="), (lines, await errors)
    base_url, key = (line.strip().partition("=")[2] for line in lines)
    gateway = Gateway(side, process, base_url, key, errors)
    try:
        async with gateway.client as client:
            # Each of these waits for the first session by itself.
            found = [(await client.get("/v1/models")).status_code for _ in range(1)]
            while found[-1] != 200 and len(found) < 8:
                found.append((await client.get("/v1/models")).status_code)
            assert found[-1] == 200, found
        yield gateway
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await errors


def needed(*packages: str) -> None:
    """Skip without them. They are not imported here: litellm would fetch a list from the network at once."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")


async def run_program(code: str | None, *arguments: str, environment: dict[str, str], folder: Path) -> str:
    """Run Python code, or another program, beside the test's own event loop, and return what it prints."""
    command = [sys.executable, "-c", code, *arguments] if code is not None else list(arguments)
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONUTF8": "1"} | environment,
    )
    out, err = await asyncio.wait_for(process.communicate(), SECONDS)
    assert process.returncode == 0, err.decode()[-3000:]
    return out.decode()


def events(text: str) -> list[Any]:
    """The data of a stream's events; "[DONE]" as it is."""
    found = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    return [one if one == "[DONE]" else json.loads(one) for one in found]
