"""Importing the chain adapter must not leave the interpreter open to input that nests deeply."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROBE = """
import json, pathlib, sys, tempfile
import {module}
from troth.chain.keystore import DEMO_SCRYPT_N, create_account, load_account
path = pathlib.Path(tempfile.mkdtemp()) / "key.json"
assert create_account(path, "word", scrypt_n=DEMO_SCRYPT_N) == load_account(path, "word")
assert sys.getrecursionlimit() <= 1000, sys.getrecursionlimit()
try:
    json.loads("[" * 200_000)
except (RecursionError, ValueError):
    print("bounded")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    ["troth.chain.deployment", "troth.scheduler.running", "troth.node.orders.running", "troth.audit.command"],
)
def test_nested_input_raises_instead_of_crashing(module: str) -> None:
    command = [sys.executable, "-c", PROBE.format(module=module)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "bounded", done.stderr


@pytest.mark.slow
def test_no_keyfile_pays_for_pairing_curves() -> None:
    """They cost most of a second, and are there all the same for whoever asks for them."""
    probe = """
import pathlib, sys, tempfile
from troth.chain.keystore import DEMO_SCRYPT_N, create_account
create_account(pathlib.Path(tempfile.mkdtemp()) / "key.json", "word", scrypt_n=DEMO_SCRYPT_N)
assert not any(name.startswith(("py_ecc.bls", "py_ecc.optimized_bls")) for name in sys.modules)
import eth_keyfile.keyfile as keyfile
from py_ecc.bls12_381 import curve_order
assert keyfile.MAX_V4_PRIVATE_KEY == curve_order - 1
from py_ecc.bls import G2ProofOfPossession
assert keyfile.bls.SkToPk(5) == G2ProofOfPossession.SkToPk(5)
print("deferred")
"""
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "deferred", done.stderr


@pytest.mark.slow
def test_no_start_pays_for_a_library_of_wallets() -> None:
    """web3 and eth_account cost a process most of a second; what is needed of them is a POST and an RLP list."""
    probe = (
        "import sys, troth.scheduler.running, troth.chain.deployment, troth.node.orders.running\n"
        "assert not {'web3', 'eth_account', 'py_ecc', 'eth_keyfile'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
