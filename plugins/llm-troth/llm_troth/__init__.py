"""LLM's models and commands over a Troth gateway, which speaks OpenAI's interface on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import ProxyHandler, Request, build_opener

import click
import llm
from llm.default_plugins.openai_models import AsyncChat, Chat

DEFAULT_GATEWAY = "http://127.0.0.1:11711"
PREFIX = "troth/"
KEY_NAME, KEY_VARIABLE = "troth", "TROTH_GATEWAY_KEY"
CACHE = "troth-models.json"
LISTING_SECONDS, ANSWER_SECONDS = 2.0, 20.0
LOOKED_THROUGH = 100
"""Of the newest answers in LLM's log."""
LARGEST_ANSWER = 16 * 2**20


class GatewaySilent(Exception):
    """The gateway does not answer, or refuses; its text says what to do."""


def gateway() -> str:
    """The gateway's address without a slash at its end; raises GatewaySilent for one that cannot be."""
    address = os.environ.get("TROTH_GATEWAY_URL", DEFAULT_GATEWAY).rstrip("/").removesuffix("/v1")
    try:
        parts = urlsplit(address)
        # Reading the port is what notices one that is no number.
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise GatewaySilent(f"TROTH_GATEWAY_URL is no address: {address!r}. Such as {DEFAULT_GATEWAY}.")
    return address


def fetched(path: str, seconds: float) -> dict[str, Any]:
    """A JSON object of the gateway; raises GatewaySilent."""
    key = llm.get_key("", KEY_NAME, KEY_VARIABLE)
    address = gateway()
    request = Request(address + path, headers={"authorization": f"Bearer {key}"} if key else {})  # noqa: S310
    try:
        found = _within(seconds, lambda: _read(request, seconds))
    except HTTPError as error:
        if error.code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            raise GatewaySilent(f"{address} wants its key: llm keys set {KEY_NAME}, or {KEY_VARIABLE}.") from error
        raise GatewaySilent(f"{address}{path} answers {error.code}: {_words(error, seconds)}") from error
    except (URLError, OSError) as error:
        raise GatewaySilent(f"No gateway answers at {address} ({error}). Start it: troth client serve.") from error
    except (ValueError, RecursionError, HTTPException) as error:
        raise GatewaySilent(f"{address} is no Troth gateway: {error}") from error
    if not isinstance(found, dict):
        raise GatewaySilent(f"{address} is no Troth gateway")
    return found


def _read(request: Request, seconds: float) -> Any:
    # The gateway is on this machine or the next one: a proxy would be asked for the key.
    with build_opener(ProxyHandler({})).open(request, timeout=seconds) as answer:
        return json.loads(answer.read(LARGEST_ANSWER))


def _within(seconds: float, work: Callable[[], Any]) -> Any:
    """What work gives within so many seconds; raises TimeoutError.

    A socket's own limit is for each piece, and whatever listens there may send a byte at a time.
    """
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append((work(), None))
        except Exception as error:  # noqa: BLE001 - it is raised where it was asked for
            outcome.append((None, error))

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise TimeoutError(f"no whole answer within {seconds:g} s")
    found, error = outcome[0]
    if error is not None:
        raise error
    return found


def _words(error: HTTPError, seconds: float) -> str:
    try:
        return str(_within(seconds, lambda: json.loads(error.read(LARGEST_ANSWER)))["error"]["message"])
    except (ValueError, LookupError, TypeError, OSError, HTTPException, RecursionError):
        return error.reason


def listed() -> list[dict[str, Any]]:
    """What the gateway offers now, or offered last; empty where neither is known."""
    cache = Path(llm.user_dir()) / CACHE
    try:
        found = _models(fetched("/v1/models", LISTING_SECONDS))
    except GatewaySilent:
        try:
            return _models(json.loads(cache.read_text(encoding="utf-8")))
        except (OSError, ValueError, RecursionError):
            return []
    # What cannot be kept is read anew next time. llm loads this before each of its commands, also for other models.
    with suppress(OSError):
        cache.write_text(json.dumps({"data": found}), encoding="utf-8")
    return found


def _models(answer: Any) -> list[dict[str, Any]]:
    data = answer.get("data") if isinstance(answer, dict) else None
    listing = data if isinstance(data, list) else []
    return [one for one in listing if isinstance(one, dict) and isinstance(one.get("id"), str)]


class TrothChat(Chat):
    """A model behind the gateway."""

    needs_key, key_env_var = KEY_NAME, KEY_VARIABLE

    def __str__(self) -> str:
        """As `llm models` lists it."""
        return f"Troth: {self.model_id}"


class AsyncTrothChat(AsyncChat):
    """The same for asynchronous programs."""

    needs_key, key_env_var = KEY_NAME, KEY_VARIABLE

    def __str__(self) -> str:
        """As `llm models` lists it."""
        return f"Troth: {self.model_id}"


@llm.hookimpl
def register_models(register: Any) -> None:
    """One for each model that the gateway offers; none where its address cannot be, which `llm troth models` says."""
    try:
        base = gateway() + "/v1"
    except GatewaySilent:
        return
    for one in listed():
        told: dict[str, Any] = {
            "model_id": PREFIX + one["id"],
            "model_name": one["id"],
            "api_base": base,
            "supports_schema": True,
            "supports_tools": True,
        }
        register(TrothChat(**told), AsyncTrothChat(**told))


@llm.hookimpl
def register_commands(cli: click.Group) -> None:
    """`llm troth`."""

    @cli.group(name="troth")
    def troth() -> None:
        """Look at a Troth gateway: its models with prices, receipts of answers."""

    @troth.command(name="models")
    def models() -> None:
        """Models, with what a million tokens cost."""
        for one in _models(_told("/v1/models")):
            pricing = one.get("pricing") or {}
            prices = ", ".join(f"{name} {price}" for name, price in pricing.items())
            click.echo(f"{PREFIX}{one['id']}  {prices}")

    @troth.command(name="receipt")
    @click.argument("identifier", default="")
    def receipt(identifier: str) -> None:
        """What became of an answer, by its id; without one, of the newest in LLM's log."""
        click.echo(json.dumps(_told(f"/v1/receipts/{quote(identifier or newest(), safe='')}"), indent=2))


def _told(path: str) -> dict[str, Any]:
    try:
        return fetched(path, ANSWER_SECONDS)
    except GatewaySilent as error:
        raise click.ClickException(str(error)) from error


def newest() -> str:
    """The id of the newest answer through the gateway in LLM's log, by LLM's own command."""
    words = [sys.executable, "-m", "llm", "logs", "list", "--json", "--count", str(LOOKED_THROUGH)]
    try:
        rows = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
        own = [one for one in rows if str(one["model"]).startswith(PREFIX)]
        return str(max(own, key=lambda one: str(one["datetime_utc"]))["response_json"]["id"])
    except (subprocess.SubprocessError, ValueError, LookupError, TypeError) as error:
        what = "LLM's log has no answer of a Troth gateway; name one: llm troth receipt ID."
        raise click.ClickException(what) from error
