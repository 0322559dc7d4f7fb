"""`troth client` as a user runs it, against a real scheduler on tabs, toy nodes and real contracts."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.client_network import PASSWORD, Network, client_side, configuration, network, toy_answer
from support.waiting import SECONDS

from troth.chain.keystore import DEMO_SCRYPT_N, create_account
from troth.client.configuration import save
from troth.client.home import Home
from troth.protocol.market.signed import Opinion
from troth.protocol.types import Hash32

pytestmark = [
    pytest.mark.chain,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]
QUESTION = "word7 word9 word11"
ALWAYS = ("--check", "always")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def scene(anvil: Any, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Network]:
    async with network(anvil, tmp_path_factory.mktemp("commands")) as made:
        yield made


async def test_from_init_to_receipt(scene: Network, tmp_path: Path) -> None:
    side = await client_side(scene, tmp_path / "home", wallet=False)
    home = Home(side.home)
    create_account(tmp_path / "key.json", PASSWORD, scrypt_n=DEMO_SCRYPT_N, key=side.key)
    options = ("--rpc", scene.rpc, "--factory", scene.factory, "--import-key", tmp_path / "key.json")
    made = await side.run("init", *options, "--json")
    assert made.code == 0, made.err
    assert made.json["address"] == side.key.address
    assert home.keystore.stat().st_mode & 0o077 == 0
    # A network of a few toys is less than a client asks for by itself.
    save(home.configuration, configuration(scene.stage))

    dry = await side.run("open", "1000000gwei", "--json")
    assert dry.code == 0, dry.err
    side.tab = Hash32(bytes.fromhex(dry.json["tab"][2:]))
    assert (dry.json["broadcast"], side.state.known) == (False, False)
    sent = await side.run("open", "1000000gwei", "--broadcast", "--json")
    assert (sent.code, sent.json["tab"]) == (0, dry.json["tab"]), sent.err
    # The wallet has tabs of other tests' homes on this chain.
    (listed,) = (one for one in (await side.run("tabs", "--json")).json if not one["elsewhere"])
    assert (listed["balance_units"], listed["free_units"]) == (str(10**15), str(10**15))

    asked = await side.run("ask", QUESTION, "--max-tokens", 5, *ALWAYS, "--json")
    assert asked.code == 0, asked.err
    assert asked.json["answer"] == toy_answer(QUESTION, 5)
    assert (asked.json["outcome"], asked.json["tokens"]) == ("checked", 5)
    cost = int(asked.json["cost_units"])
    assert side.book.spent == cost > 0

    order = asked.json["order"]
    (one,) = (await side.run("receipts", "--json")).json
    assert (one["order"], one["state"], one["paid_units"]) == (order, "checked", str(cost))
    shown = await side.run("receipts", order[:12], "--prove", tmp_path / "proof", "--json")
    assert (shown.json["order"], shown.json["checked"]) == (order, True)
    assert (tmp_path / "proof").stat().st_size > 0

    back, *others = (await side.run("close", "--broadcast", "--json")).json
    assert {one["step"] for one in others} <= {"elsewhere"}, "tabs of other homes are named, and stay as they are"
    assert back["tab"] == dry.json["tab"]
    await scene.ledger.catch_up()
    assert side.state.closes_at > 0


async def test_the_answer_is_on_standard_output_and_the_rest_beside_it(scene: Network, tmp_path: Path) -> None:
    side = await client_side(scene, tmp_path / "home")
    asked = await side.run("chat", "-", "--max-tokens", 4, *ALWAYS, stdin=QUESTION.encode())
    assert asked.code == 0, asked.err
    assert asked.out == toy_answer(QUESTION, 4) + "\n"
    for step in ("ordered", "drawn, proof checked", "4 tokens read, 4 written", "checked"):
        assert step in asked.err
    # One owner may be drawn for all seats.
    assert re.search(r"(\d verifiers compute|1 verifier computes) it again", asked.err)


async def test_a_rejected_answer_is_not_paid_and_has_its_own_exit_code(scene: Network, tmp_path: Path) -> None:
    side = await client_side(scene, tmp_path / "home")
    scene.accept(Opinion.REJECT)
    try:
        asked = await side.run("chat", QUESTION, "--max-tokens", 3, *ALWAYS, "--json")
    finally:
        scene.accept()
    assert asked.code == 3, asked.err
    assert asked.json["outcome"] == "rejected"
    assert asked.error["kind"] == "AnswerNotAccepted"
    (receipt,) = (await side.run("receipts", "--json")).json
    assert (receipt["state"], receipt["paid_units"]) == ("rejected", None)
    assert side.book.spent == 0


async def test_a_conversation_goes_on_after_a_bad_line(scene: Network, tmp_path: Path) -> None:
    side = await client_side(scene, tmp_path / "home")
    lines = b"word7\n\nword8 \xff\xfe\nword9\n/exit\nword10\n"
    talked = await side.run("chat", "--max-tokens", 3, *ALWAYS, stdin=lines)
    assert talked.code == 0, talked.err
    assert len([line for line in talked.err.splitlines() if line.startswith("checked · ")]) == 2
    assert "not valid UTF-8" in talked.err
    assert side.book.spent == sum(history.answered.fee for history in side.orders if history.answered is not None)
    assert len(side.orders) == 2


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
async def test_a_client_that_ends_midway_is_paid_for_by_the_next(
    scene: Network, tmp_path: Path, number: signal.Signals
) -> None:
    side = await client_side(scene, tmp_path / "home")
    scene.drip(0.1)
    try:
        process = await side.start("chat", QUESTION, "--max-tokens", 40, *ALWAYS)
        assert process.stdout is not None
        await asyncio.wait_for(process.stdout.read(1), SECONDS)
        process.send_signal(number)
        _, err = await asyncio.wait_for(process.communicate(), SECONDS)
        assert b"Traceback" not in err
        if number is not signal.SIGKILL:
            assert process.returncode == 128 + number
            named = f"interrupted: no more of order 0x{side.orders[0].order_id.hex()[:10]} is written, and what was"
            assert named in err.decode()
    finally:
        scene.drip(0)
    # The next process that asks takes the order up.
    asked = await side.run("chat", "word8", "--max-tokens", 2, *ALWAYS, "--json")
    assert asked.code == 0, asked.err
    assert len(side.orders) == 2
    receipts = (await side.run("receipts", "--json")).json
    assert {one["order"] for one in receipts} == {"0x" + history.order_id.hex() for history in side.orders}
    assert asked.json["order"] in {one["order"] for one in receipts if one["state"] == "checked"}


async def test_commands_at_the_same_time_see_the_same_chain(scene: Network, tmp_path: Path) -> None:
    side = await client_side(scene, tmp_path / "home")
    shown = await asyncio.gather(*(side.run("tabs", "--json") for _ in range(3)))
    assert [one.json[0]["balance_units"] for one in shown] == [str(side.state.balance)] * 3


async def test_a_tab_that_is_short_names_the_command_that_tops_up(scene: Network, tmp_path: Path) -> None:
    side = await client_side(scene, tmp_path / "home", deposit=1000)
    short = await side.run("chat", QUESTION, "--max-tokens", 2, *ALWAYS, "--json")
    assert short.code == 1
    assert short.error["kind"] == "TabShort"
    assert "troth client top-up" in short.error["remedy"]
    assert (side.book.sequence, side.orders) == (0, [])
    topped = await side.run("top-up", "0x" + side.tab.hex()[:10], "1000000gwei", "--broadcast", "--json")
    assert topped.code == 0, topped.err
    asked = await side.run("chat", QUESTION, "--max-tokens", 2, *ALWAYS, "--json")
    assert asked.json["outcome"] == "checked"


REFUSED: list[tuple[str, tuple[object, ...], bytes]] = [
    ("PromptError", ("chat", "  "), b""),
    ("PromptError", ("chat", "-"), b"\xff\xfe\xfd"),
    ("PromptError", ("chat", "-"), b"a" * 300_000),
    ("ContextTooShort", ("chat", QUESTION, "--max-tokens", 5000), b""),
    ("FeeTooHigh", ("chat", QUESTION, "--max-tokens", 2, "--max-cost", "1wei"), b""),
    ("ModelUnavailable", ("chat", QUESTION, "--execution-class", "0x" + "ab" * 32), b""),
    ("ConfigurationError", ("chat", QUESTION, "--scheduler", "0x" + "ab" * 20), b""),
    ("AmountError", ("open", "1.5wei"), b""),
    ("ReceiptNotFound", ("receipts", "0xabcd"), b""),
    ("ChainUnavailable", ("receipts", "--rpc", "http://127.0.0.1:1"), b""),
]


async def test_refusals_have_three_parts_and_cost_nothing(scene: Network, tmp_path: Path) -> None:
    side = await client_side(scene, tmp_path / "home")
    for kind, arguments, stdin in REFUSED:
        refused = await side.run(*arguments, "--json", stdin=stdin)
        assert refused.code == 1, (arguments, refused.out, refused.err)
        assert refused.error["kind"] == kind, (arguments, refused.error)
        assert refused.error["what"]
        assert refused.error["remedy"]
        assert "Traceback" not in refused.err
    assert (side.book.sequence, side.orders) == (0, [])


async def test_another_tls_key_gets_no_order(scene: Network, tmp_path: Path) -> None:
    side = await client_side(scene, tmp_path / "home")
    async with scene.impostor(tmp_path / "impostor") as asked:
        refused = await side.run("chat", QUESTION, "--json")
    assert refused.code == 1
    assert "TLS key" in refused.error["what"]
    assert asked == []
    assert (side.book.sequence, side.orders) == (0, [])
