"""A destination's process: an ASGI application behind the overlay, as a scheduler's would be.

Arguments: folder of its TLS key, address, port, file of its X25519 seal key (32 bytes). It prints JSON lines: what the
application was asked and knew of the client, and the secret of each answer. An answer to /slowly stops in the middle
until a line comes in.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from troth.overlay.relay.delivery_server import DeliveryServer
from troth.overlay.sessions.destination import Destination
from troth.overlay.sessions.entry import serve_application
from troth.transport.identity import load_identity
from troth.transport.logs import configure

PIECES = 24


async def application(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    """Streams an answer, a piece at a time, as tokens come."""
    request = await receive()
    answer = secrets.token_hex(32)
    known = {"asked": request["body"].decode(), "client": scope["client"], "headers": len(scope["headers"])}
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    for number in range(PIECES):
        if number == PIECES // 2:
            print(json.dumps(known | {"answer": answer}), flush=True)
            if scope["path"] == "/slowly":
                await asyncio.to_thread(sys.stdin.readline)
        await send({"type": "http.response.body", "body": f"{number} {answer} ".encode(), "more_body": True})
        # So that each leaves alone.
        await asyncio.sleep(0.005)


async def serve(folder: Path, host: str, port: int, secret: X25519PrivateKey) -> None:
    """Serve until killed."""
    identity = load_identity(folder)
    destination = Destination(identity.spki_sha256, secret, serve_application(application))
    await DeliveryServer(identity, destination.answers).start(host, port)
    print("destination listens", flush=True)
    await destination.sweeping()


def main() -> None:
    """See the module."""
    configure("debug")
    folder, host, port, seal_key = sys.argv[1:5]
    secret = X25519PrivateKey.from_private_bytes(Path(seal_key).read_bytes())
    asyncio.run(serve(Path(folder), host, int(port), secret))
