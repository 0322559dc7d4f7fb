"""The placement of a running scheduler, asked over its own endpoint on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import httpx

from troth.overlay.errors import OverlayError
from troth.overlay.https import naming_errors, pinned_client
from troth.overlay.identity import load_identity

SECONDS = 3.0
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where it listens; asked at the loopback


class Listening(Protocol):
    """Where a scheduler of this machine listens, as its configuration says."""

    @property
    def folder(self) -> Path:
        """The home folder."""

    @property
    def host(self) -> str:
        """The address."""

    @property
    def port(self) -> int:
        """The port."""


async def placement_of(configuration: Listening) -> dict[str, Any] | None:
    """What GET /v1/placement says; None if the scheduler does not run here."""
    host = EVERYWHERE.get(configuration.host, configuration.host)
    endpoint = f"https://{f'[{host}]' if ':' in host else host}:{configuration.port}"
    try:
        identity = load_identity(configuration.folder / "tls")
        with naming_errors(endpoint):
            async with pinned_client(endpoint, identity.spki_sha256, SECONDS) as client:
                answer = await client.get("/v1/placement")
                found: dict[str, Any] = answer.raise_for_status().json()
                return found
    except (OverlayError, httpx.HTTPError, ValueError):
        return None
