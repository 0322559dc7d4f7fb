"""A command that is interrupted while it is still loaded ends with 130, quietly, as it does later."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

INTERRUPTED_AT = """
import os, signal, sys, threading
signal.signal(signal.SIGINT, signal.{before})

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            print("reached", flush=True)
            os.kill(os.getpid(), signal.SIGINT)
        return None

sys.meta_path.insert(0, Interrupting())
from troth.command.main import main
main()
"""
STAGES = ("typer", "troth.command.root", "troth.network.option", "troth.node.command", "troth.node.earning.money")
"""Modules in the order in which `troth node tabs` loads them: its parser, its own command, what that does."""


def interrupted(module: str, before: str) -> subprocess.CompletedProcess[str]:
    code = INTERRUPTED_AT.format(module=module, before=before)
    words = [sys.executable, "-c", code, "node", "tabs", "--home", "/nowhere/at/all"]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("module", STAGES)
def test_an_interrupt_while_a_command_is_loaded_is_quiet(module: str) -> None:
    done = interrupted(module, "default_int_handler")
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGINT, "reached\n", "")


@pytest.mark.slow
def test_what_ignores_interrupts_goes_on() -> None:
    done = interrupted("typer", "SIG_IGN")
    assert (done.returncode, done.stdout) == (1, "reached\n")
    assert "/nowhere/at/all" in done.stderr
