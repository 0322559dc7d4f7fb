"""A node's entry to the overlay: where clients whom nobody sees reach it, and by which the committee lists it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from prometheus_client import CollectorRegistry

from troth.node.configuration import Configuration
from troth.node.engine.interface import Engine
from troth.node.errors import ConfigError
from troth.overlay.identity import load_identity
from troth.overlay.sessions.entry import EntryKeys, overlay_entry
from troth.protocol.types import Segment


def entry_application(reasons: Callable[[], list[str]]) -> FastAPI:
    """What clients find at the entry, and what is mounted there: not the channel of schedulers, nor metrics."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/readyz")
    async def readyz() -> JSONResponse:
        found = reasons()
        return JSONResponse({"ready": not found, "reasons": found}, status_code=503 if found else 200)

    return app


def require_whole_model(configuration: Configuration, engine: Engine) -> None:
    """ConfigError for an entry of a node that hosts a part of its model: it could answer nobody."""
    if configuration.overlay is not None and engine.slice != Segment(0, engine.layers):
        remedy = f"Host layers 0:{engine.layers}, or take [overlay] out of node.toml."
        raise ConfigError("an overlay entry needs the whole model", str(engine.slice), remedy)


@asynccontextmanager
async def node_entry(
    configuration: Configuration, operator_secret: bytes, app: FastAPI, registry: CollectorRegistry
) -> AsyncIterator[int | None]:
    """Takes deliveries inside the block where [overlay] is configured; yields the port."""
    identity = load_identity(configuration.tls_folder)
    keys = EntryKeys("node", operator_secret, identity, configuration.seal_key)
    async with overlay_entry(configuration.overlay, configuration.rpc, keys, app, registry) as port:
        yield port
