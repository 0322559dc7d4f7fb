"""A gateway on tabs on a real socket, before toy schedulers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
from support.toy_tab_stage import Stage, toy_stage

from troth.client.gateway.serving import GatewaySettings, assembled
from troth.client.gateway.serving import RunningGateway as Gateway
from troth.client.orders.keeping import OrderKeeper
from troth.client.orders.running import Running
from troth.client.orders.wishes import CheckWish, PriceLimit
from troth.protocol.amounts import Asset
from troth.protocol.market.types import NO_ADDRESS
from troth.transport.server import serving

MESSAGES = [{"role": "user", "content": "hello"}]
USDC = Asset(NO_ADDRESS, "usdc", 6)


@dataclass
class TabGateway:
    """The gateway, and the stage behind it."""

    gateway: Gateway
    stage: Stage

    @property
    def client(self) -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {self.gateway.access.key}"}
        return httpx.AsyncClient(
            base_url=self.gateway.gateway.base, headers=headers, timeout=60, trust_env=False, verify=False
        )

    async def post(self, path: str = "/v1/chat/completions", **fields: Any) -> httpx.Response:
        async with self.client as client:
            return await client.post(
                path, json={"model": "toy-float32", "messages": MESSAGES, "max_tokens": 64} | fields
            )

    async def get(self, path: str) -> httpx.Response:
        async with self.client as client:
            return await client.get(path)


@asynccontextmanager
async def tab_gateway(
    folder: Path,
    *,
    check: str = "",
    price: PriceLimit = PriceLimit(),
    options: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[TabGateway]:
    async with toy_stage(folder, **(options or {})) as stage:

        @asynccontextmanager
        async def factory() -> AsyncIterator[Running]:
            async with OrderKeeper(stage.session) as keeper:
                yield Running(stage.session, USDC, keeper)

        plain = replace(GatewaySettings(port=0, keep_alive=2.0), **settings)
        made = assembled(stage.home, factory, plain, CheckWish.read(check), price)
        async with made as gateway, serving(gateway.server) as server:
            gateway.listens(server.port)
            yield TabGateway(gateway, stage)


def said(text: str) -> list[Any]:
    """The data of a stream's events."""
    found = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    return [one if one == "[DONE]" else json.loads(one) for one in found]
