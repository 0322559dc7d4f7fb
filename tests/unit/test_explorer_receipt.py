"""The receipt page's JavaScript against our Python: what holds, what every single change breaks, and draws on chain."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.market_case import receipt_of
from support.market_scene import DOMAIN, SCHEDULER_KEY, TAB, VRF_SECRET, Scene, hash_of
from support.receipt_chain import answers, call

from troth.protocol import vrf
from troth.protocol.errors import ProtocolError
from troth.protocol.market import messages, receipt
from troth.protocol.market.messages import sign
from troth.protocol.market.receipt import Receipt
from troth.protocol.market.signed import Opinion
from troth.protocol.types import address_to_bytes

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "explorer/troth/explorer/static"
NODE = shutil.which("node", path=f"{ROOT / 'node_modules/.bin'}") or shutil.which("node")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(NODE is None, reason="Node.js is not installed: the page's JavaScript is not run"),
]


def said_by_page(**asked: Any) -> dict[str, Any]:
    """What the page's own module says."""
    assert NODE is not None
    script = ROOT / "tests/support/check_receipts.mjs"
    done = subprocess.run([NODE, str(script)], input=json.dumps(asked), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def said_by_python(data: bytes) -> dict[str, Any] | None:
    """The same by ours; None where the receipt does not hold."""
    try:
        found = receipt.decode(data)
        proven = receipt.verify(found)
    except ProtocolError:
        return None
    order = messages.order_id(found.order.message, messages.market_domain(found.chain_id, found.bank))
    opinions = [one.name.lower() for one in proven.opinions]
    return {
        **{"fee": str(proven.fee), "drawn": proven.drawn, "opinions": opinions},
        **{"unproven": list(proven.unproven), "order": "0x" + order.hex()},
    }


@cache
def plain() -> Receipt:
    return receipt_of(Scene())


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [leaf for key, one in value.items() for leaf in leaves(one, (*path, key))]
    if isinstance(value, list):
        return [leaf for index, one in enumerate(value) for leaf in leaves(one, (*path, index))]
    return [path]


def other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if value.startswith("0x") and len(value) > 4:
        middle = len(value) // 2
        return value[:middle] + ("1" if value[middle] == "0" else "0") + value[middle + 1 :]
    return value + "1" if value.isdigit() else value + "é\x7f"


def changed(data: bytes) -> list[bytes]:
    """The receipt with each single value changed, and some made null."""
    made = []
    for number, path in enumerate(leaves(json.loads(data))):
        for change in (other, *((lambda _: None,) if number % 7 == 0 else ())):
            loaded = json.loads(data)
            inner = loaded
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = change(inner[path[-1]])
            made.append(json.dumps(loaded, sort_keys=True, separators=(",", ":")).encode())
    return made


def variants() -> list[bytes]:
    """Receipts that hold, and forms that none has."""
    whole = receipt.encode(plain())
    segment = plain().checks[0]
    order = replace(plain().order.message, max_fee=9)
    held = [
        plain(),
        replace(plain(), checks=()),
        replace(plain(), checks=(), secret=None),
        replace(plain(), secret=hash_of("x")),
        replace(plain(), checks=plain().checks * 2),
        replace(plain(), checks=(replace(segment, drawn=segment.drawn[:2]),)),
        replace(plain(), checks=(replace(segment, silent=segment.drawn[:1]),)),
        replace(plain(), checks=(replace(segment, verdicts=segment.verdicts[:1]),)),
        replace(plain(), order=sign(order, DOMAIN, SCHEDULER_KEY)),
        receipt_of(Scene(), Opinion.REJECT),
        receipt_of(Scene(), Opinion.CANNOT_TELL),
    ]
    forms = [whole + b" ", whole.replace(b'"0x', b'"0X', 1), whole[:-1], b"[]", b"null", b"{}", b'{"__proto__":"1"}']
    forms += [whole.replace(b":", b": ", 1), whole.replace(b'"version":"1"', b'"version":"01"'), b"[" * 5_000]
    return [*map(receipt.encode, held), *forms]


def test_page_and_python_say_the_same_of_every_receipt() -> None:
    texts = [*variants(), *changed(receipt.encode(plain()))]
    page = said_by_page(receipts=[one.decode() for one in texts])["receipts"]
    ours = [said_by_python(one) for one in texts]
    assert sum(one is not None for one in ours) > 5
    for text, expected, found in zip(texts, ours, page, strict=True):
        if expected is None:
            assert found.get("known"), (text[:200], found)
        else:
            assert found == expected


def test_a_pipeline_of_segments_is_checked_too() -> None:
    scene = Scene(parts=(5, 12))
    whole = receipt_of(scene)
    swapped = replace(whole, results=whole.results[::-1])
    texts = [receipt.encode(one) for one in (whole, swapped, replace(whole, nodes=whole.nodes[::-1]))]
    page = said_by_page(receipts=[one.decode() for one in texts])["receipts"]
    assert page[0] == said_by_python(texts[0])
    assert all("error" in one for one in page[1:])


def test_proofs_are_those_of_the_protocol() -> None:
    key = vrf.public_key(VRF_SECRET)
    cases, expected = [], []
    for number in range(6):
        alpha = hash_of(f"alpha {number}")
        proof = vrf.prove(VRF_SECRET, alpha)
        for forged in (proof, bytes([proof[0] ^ 1]) + proof[1:], proof[:-1] + bytes([proof[-1] ^ 1]), proof[:80]):
            cases.append({"key": [str(one) for one in key], "alpha": "0x" + alpha.hex(), "proof": "0x" + forged.hex()})
            try:
                expected.append("0x" + vrf.verify(key, alpha, forged).hex())
            except ProtocolError:
                expected.append(None)
    assert said_by_page(proofs=cases)["proofs"] == expected
    assert sum(one is not None for one in expected) == 6


# --------------------------------------------------------------------------------------------------------- by the chain


@pytest.mark.parametrize("parts", [(12,), (5, 12)])
def test_the_chain_is_asked_exactly_what_python_would_draw(parts: tuple[int, ...]) -> None:
    scene = Scene(parts=parts)
    found = receipt_of(scene)
    places, known = answers(scene, found)
    text = receipt.encode(found).decode()
    asked = {"receipt": text, "places": places, "chainId": DOMAIN.chain_id, "answers": known}
    friend = next(one for one in scene.view.groups[0].owners if one not in found.checks[0].drawn)
    drawn = bytes(12) + address_to_bytes(found.checks[0].drawn[0])
    lied = {
        name: said.replace(drawn.hex(), (bytes(12) + address_to_bytes(friend)).hex()) for name, said in known.items()
    }
    wrong_key = dict(known)
    wrong_key[call(places["registry"], "vrfKeyOf(address)", TAB.payee)] = "0x" + "11" * 64
    page = said_by_page(
        chain=[
            asked,
            {**asked, "chainId": 1},
            {**asked, "answers": lied},
            {**asked, "answers": wrong_key},
            {**asked, "places": {**places, "registry": places["lens"]}},
        ]
    )["chain"]
    assert page[0]["holds"], page[0]
    assert [one["holds"] for one in page[1:]] == [False] * 4
    assert "was not drawn" in page[2]["error"] or "Other verifiers" in page[2]["error"]
    # A node hears addresses and seeds: no part of a prompt, no signature, no payer.
    heard = json.dumps(page[0]["asked"]).lower()
    assert TAB.payer[2:].lower() not in heard
    assert found.order.signature.hex() not in heard


# --------------------------------------------------------------------------------------------------------- other's code


def test_the_library_is_as_it_was_copied() -> None:
    listed = {}
    for line in (STATIC / "vendor/SOURCES.txt").read_text(encoding="utf-8").splitlines():
        parts = line.split()
        if len(parts) > 1 and len(parts[0]) == 64:
            listed[parts[1]] = parts[0]
    files = {str(one.relative_to(STATIC / "vendor")): one for one in (STATIC / "vendor").rglob("*.js")}
    assert {name: hashlib.sha256(one.read_bytes()).hexdigest() for name, one in files.items()} == listed
