"""Imported by the server of ``forked`` alone: everything that one of its programs may need within its first second."""

from __future__ import annotations

import atexit
import gc
import importlib
import tempfile
from contextlib import suppress
from pathlib import Path

from troth.chain import keystore

MODULES = (
    "accelerate",
    "troth.audit.command",
    "troth.audit.market.auditing",
    "troth.cases.command",
    "troth.chain.deployment",
    "troth.client.command",
    "troth.client.gateway.serving",
    "troth.client.orders.asking",
    "troth.client.orders.keeping",
    "troth.client.orders.session",
    "troth.command.root",
    "troth.committee.command",
    "troth.committee.running",
    "troth.node.command",
    "troth.node.engine.torch_engine",
    "troth.node.engine.loading",
    "troth.node.orders.running",
    "troth.overlay.relay.command",
    "troth.overlay.relay.running",
    "troth.scheduler.command",
    "troth.scheduler.running",
)


def _open_a_keyfile() -> None:
    """The library for keyfiles is loaded where one is first used."""
    with tempfile.TemporaryDirectory() as folder:
        keystore.create_account(Path(folder) / "key.json", "word", scrypt_n=keystore.DEMO_SCRYPT_N)


for _module in MODULES:
    # torch and its models are not installed everywhere: who needs them says so.
    with suppress(ImportError):
        importlib.import_module(_module)
_open_a_keyfile()
# What is there before a fork is never collected: its pages stay shared.
gc.freeze()
# At the server's own end libraries look for what was not freed, and print it on the terminal.
atexit.register(gc.unfreeze)
