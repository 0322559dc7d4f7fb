"""The client's gateway as a process, and what the demo asks it, as any OpenAI client would."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from troth.client.template import Message
from troth.testnet import cli
from troth.testnet.errors import ActFailed
from troth.testnet.ports import free_port
from troth.testnet.processes import Child, ProcessGroup, wait_until

READY_SECONDS = 240.0
ANSWER_SECONDS = 180.0
VERDICT_SECONDS = 300.0
SHOWN_BYTES = 2_000


@dataclass(frozen=True, slots=True)
class Streamed:
    """A streamed answer and what its last chunk said of the task."""

    identifier: str
    text: str
    task: str
    receipt: str
    served_by: str = ""


@dataclass(slots=True)
class LocalGateway:
    """`troth client serve` of one wallet."""

    child: Child
    address: str
    key: str

    @classmethod
    def start(
        cls, processes: ProcessGroup, home: Path, password_file: Path, *options: object, name: str = "gateway"
    ) -> LocalGateway:
        """Start it and wait until it has a session at the scheduler."""
        port = free_port()
        address = f"http://127.0.0.1:{port}"
        child = processes.start(
            name,
            cli.command("client", "serve", "--home", home, "--port", port, "--relay-port", free_port(), *options),
            cli.environment(password_file),
        )
        wait_until(lambda: _is_ready(address), "The gateway's session at the scheduler", READY_SECONDS, [child])
        return cls(child, address, (home / "client" / "gateway.key").read_text().strip())

    def paths(self) -> list[list[str]]:
        """Addresses of the relays of each circuit in use, guard first."""
        found = self._get("/v1/paths")
        return [[relay["address"] for relay in one["relays"]] for one in found["circuits"] if one["in_use"]]

    def ask(self, question: str, max_tokens: int, on_piece: Callable[[str], None]) -> Streamed:
        """Stream the greedy answer to one question; raises ActFailed where the gateway does not answer."""
        return self.converse([{"role": "user", "content": question}], max_tokens, on_piece)

    def converse(self, messages: Sequence[Message], max_tokens: int, on_piece: Callable[[str], None]) -> Streamed:
        """The same for a conversation."""
        body = {
            "model": self._get("/v1/models")["data"][0]["id"],
            "messages": [dict(message) for message in messages],
            "max_tokens": max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        text, identifier = "", ""
        troth: dict[str, Any] = {}
        url = f"{self.address}/v1/chat/completions"
        with httpx.stream("POST", url, json=body, headers=self._headers(), timeout=ANSWER_SECONDS) as response:
            if response.status_code != 200:
                raise ActFailed("The gateway refused the question", response.read().decode(), "See its log (--keep).")
            for chunk in _events(response):
                if "error" in chunk:
                    raise ActFailed("The answer broke off", json.dumps(chunk["error"]), "See the gateway's log.")
                identifier = chunk["id"]
                troth = chunk.get("troth", troth)
                for choice in chunk["choices"]:
                    piece = choice["delta"].get("content") or ""
                    if piece:
                        text += piece
                        on_piece(piece)
        served_by = str(troth.get("served_by") or "")
        return Streamed(identifier, text, str(troth["task"]), str(troth["receipt"]), served_by)

    def receipt(self, streamed: Streamed) -> dict[str, Any]:
        """The receipt once the chain has decided."""
        found: dict[str, Any] = {}

        def decided() -> bool:
            found.update(self._get(f"/v1/receipts/{streamed.identifier}"))
            return found["tasks"][0]["outcome"] not in {None, "pending"}

        wait_until(decided, "The verdict", VERDICT_SECONDS, [self.child])
        return found

    def receipt_now(self, streamed: Streamed) -> dict[str, Any]:
        """The receipt as it stands."""
        return self._get(f"/v1/receipts/{streamed.identifier}")

    def _get(self, path: str) -> dict[str, Any]:
        request = urllib.request.Request(f"{self.address}{path}", headers=self._headers())  # noqa: S310 - loopback only
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:  # noqa: S310 - loopback only
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            said = error.read(SHOWN_BYTES).decode(errors="replace")
            raise ActFailed(f"The gateway refused {path}", f"{error.code}: {said}", "See its log (--keep).") from error

    def _headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"}


def _events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


def _is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/readyz", timeout=2) as answer:  # noqa: S310 - loopback only
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
