"""The stream's gate, the posts of a commit, the reading of openings, the configuration."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from troth.chain import keystore
from troth.chain.errors import KeystoreError
from troth.protocol.calls import plain_openings
from troth.protocol.contract_types import ABSENT, CommitSubmission, Opening
from troth.protocol.errors import InvalidOpening
from troth.protocol.task import Phase, Progress, Task, Terms
from troth.protocol.types import ZERO_HASH, Hash32, address_from_bytes, pack_ends
from troth.protocol.wire import Opened
from troth.scheduler.configuration import load, template
from troth.scheduler.errors import ConfigurationInvalid
from troth.scheduler.founding import Wishes
from troth.scheduler.initialisation import initialise
from troth.scheduler.ledger import Ledger
from troth.scheduler.openings import opened
from troth.scheduler.posting import masked, seated, submission
from troth.scheduler.records import Committing, SegmentPosts
from troth.scheduler.stream import ClientStream
from troth.scheduler.timing import Breakdown


async def test_tokens_wait_until_the_fee_is_locked() -> None:
    stream = ClientStream()
    stream.send("assigned")
    stream.send_when_opened("token", id=1)
    stream.send_when_opened("token", id=2)
    stream.send("opened")
    stream.open_gate()
    stream.send_when_opened("token", id=3)
    stream.end()
    lines = [line async for line in stream.lines()]
    assert [line.get("id", line["type"]) for line in lines] == ["assigned", "opened", 1, 2, 3]


async def test_without_a_lock_no_token_is_ever_shown() -> None:
    stream = ClientStream()
    stream.send_when_opened("token", id=1)
    stream.send("failed")
    stream.end()
    assert [line["type"] async for line in stream.lines()] == ["failed"]


def test_posts_leave_a_zero_for_a_silent_verifier_and_no_signature() -> None:
    first = SegmentPosts(1, b"r" * 32, b"1" * 65, (b"a" * 32, b"", b"c" * 32), (b"2" * 65, b"", b"3" * 65))
    second = SegmentPosts(0, b"q" * 32, b"4" * 65, (b"", b"d" * 32, b"e" * 32), (b"", b"5" * 65, b"6" * 65))
    made = submission(Committing(2, 9, b"o" * 32, (first, second)))
    assert made.posts[0] == b"r" * 32
    assert made.posts[2] == made.posts[5] == ZERO_HASH
    assert made.inferencers == b"\x01\x00".ljust(32, b"\0")
    assert made.signatures == b"".join(digit * 65 for digit in (b"1", b"2", b"3", b"4", b"5", b"6"))
    assert (made.attempt, made.positions, len(made.posts)) == (2, 9, 8)


def test_a_rival_that_posted_first_does_not_shift_the_inferencers() -> None:
    """It took the first place in its segment; an index from the draw would now name it."""
    one, two, three = (address_from_bytes(bytes([number]) * 20) for number in (1, 2, 3))
    drawn = ((one, two), (one, three))
    terms = Terms(one, two, ZERO_HASH, 1, 1, pack_ends((1, 2)))
    opened_ = Task(terms, Progress(Phase.OPENED, 1, 2, 2))
    parties = (two, one, three, one, three, two)
    assigned = Task(terms, Progress(Phase.ASSIGNED, 1, 2, 2, parties=parties))
    posts = CommitSubmission(1, 1, ZERO_HASH, ZERO_HASH, (), b"")
    assert seated(posts, opened_, (one, three), drawn).inferencers == b"\0\1".ljust(32, b"\0")
    assert seated(posts, assigned, (one, three), drawn).inferencers == b"\1\1".ljust(32, b"\0")


def test_masking_is_undone_by_the_protocol() -> None:
    def opening(fill: bytes) -> Opening:
        return Opening(Hash32(fill * 32), True, ZERO_HASH, fill * 512, ())

    plain = (opening(b"a"), opening(b"a"), ABSENT, ABSENT, opening(b"b"), opening(b"c"))
    sent = masked(plain, 3)
    assert sent[1].tiles == bytes(512)
    assert sent[4].tiles == b"b" * 512
    assert plain_openings(sent, 3) == plain


@pytest.mark.parametrize("length", [0, 511, 512 + 31, 512 + 64])
def test_an_opening_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(InvalidOpening):
        opened(Opened(b"r" * 32, True, b"s" * 32, tiles=1, siblings=1), bytes(length))


def test_an_opening_is_split_where_its_header_says() -> None:
    found = opened(Opened(b"r" * 32, True, b"s" * 32, tiles=1, siblings=2), b"t" * 512 + b"1" * 32 + b"2" * 32)
    assert (found.tiles, found.siblings) == (b"t" * 512, (b"1" * 32, b"2" * 32))


def test_the_breakdown_separates_relay_from_model() -> None:
    spent = Breakdown(waiting=1.0, model=0.75, generation=1.25, tokens=10)
    assert spent.relay == 0.25
    assert spent.overhead_per_token == pytest.approx(0.05)
    with spent.spent("signing"):
        pass
    assert spent.signing > 0
    assert spent.as_numbers()["relay"] == 0.25


def written(folder: Path, text: str | None = None, **changes: object) -> Path:
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps({"max_position_embeddings": 64}))
    (model / "tokenizer.json").write_text("{}")
    values: dict[str, object] = {
        "rpc": "http://127.0.0.1:8545",
        "contract": "0x5FbDB2315678afecb367f032d93F642f64180aa3",
        "start_block": 3,
        "host": "127.0.0.1",
        "port": 8443,
        "endpoint": "https://127.0.0.1:8443",
        "serve": [{"class": "0x" + "ab" * 32, "ends": (1, 2), "model": str(model)}],
    }
    (folder / "scheduler.toml").write_text((template(values | changes)) if text is None else text)
    return folder


def test_what_init_writes_can_be_read(tmp_path: Path) -> None:
    configuration = load(written(tmp_path))
    assert configuration.served[0].class_id == b"\xab" * 32
    assert (configuration.served[0].ends, configuration.served[0].context) == ((1, 2), 64)
    assert configuration.operator_keystore == tmp_path / "keys" / "operator.json"
    assert configuration.start_block == 3


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"contract": "0x12"}, "contract"),
        ({"endpoint": "http://127.0.0.1"}, "endpoint"),
        ({"port": 70000}, "port"),
        ({"start_block": -1}, "start_block"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, change: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigurationInvalid, match=named):
        load(written(tmp_path, **change))


@pytest.mark.parametrize("ends", [(1, 3), (1,), (2, 1, 2)])
def test_ends_that_do_not_cut_the_model_are_refused(tmp_path: Path, ends: tuple[int, ...]) -> None:
    serve = {"class": "0x" + "ab" * 32, "ends": ends, "model": str(tmp_path / "model")}
    folder = written(tmp_path, serve=[serve])
    (tmp_path / "model" / "config.json").write_text('{"max_position_embeddings": 64, "num_hidden_layers": 2}')
    with pytest.raises(ConfigurationInvalid, match="2 layers"):
        load(folder)


def test_a_refused_init_leaves_nothing_in_the_way_of_the_next(tmp_path: Path) -> None:
    written(tmp_path).joinpath("scheduler.toml").unlink()
    password = tmp_path / "password"
    password.write_text("secret\n")
    password.chmod(0o600)
    wishes = Wishes(
        rpc="http://127.0.0.1:8545",
        contract="0x5FbDB2315678afecb367f032d93F642f64180aa3",
        class_id="0x" + "ab" * 32,
        model=tmp_path / "model",
        ends="1,2",
        host="127.0.0.1",
        port=8443,
        endpoint="https://127.0.0.1:8443",
        start_block=0,
        operator_keystore=None,
        vrf_keystore=tmp_path / "none.json",
    )
    with pytest.raises(KeystoreError):
        initialise(tmp_path, wishes, password)
    told = initialise(tmp_path, replace(wishes, vrf_keystore=None), password)
    assert told["operator"] == keystore.address_in(tmp_path / "keys" / "operator.json")


def test_a_misspelt_key_and_another_version_are_refused(tmp_path: Path) -> None:
    folder = written(tmp_path)
    good = (folder / "scheduler.toml").read_text()
    (folder / "scheduler.toml").write_text(good + "\n[limits]\nconcurent = 3\n")
    with pytest.raises(ConfigurationInvalid, match="concurent"):
        load(folder)
    (folder / "scheduler.toml").write_text(good.replace("version = 1", "version = 2"))
    with pytest.raises(ConfigurationInvalid, match="version 2"):
        load(folder)
    (folder / "scheduler.toml").unlink()
    with pytest.raises(ConfigurationInvalid, match="troth scheduler init"):
        load(folder)


def test_a_raw_key_in_the_configuration_is_refused(tmp_path: Path) -> None:
    from troth.chain.errors import RawKeyRefused

    folder = written(tmp_path)
    path = folder / "scheduler.toml"
    path.write_text(path.read_text() + f'\n[keys]\noperator = "0x{"11" * 32}"\n')
    with pytest.raises(RawKeyRefused):
        load(folder)


async def test_a_flood_of_orders_costs_no_flood_of_looks_at_the_chain() -> None:
    class Follower:
        looks = 0

        async def catch_up(self) -> None:
            self.looks += 1
            await asyncio.sleep(0)

    follower: Any = Follower()
    ledger = Ledger(cast(Any, None), follower, cast(Any, None), minimum_stake=0)
    await asyncio.gather(*[ledger.catch_up() for _ in range(100)])
    assert follower.looks <= 2
    await ledger.catch_up()
    assert follower.looks <= 3
