"""[market] of node.toml, and what the operator may say about money."""

from __future__ import annotations

from pathlib import Path

import pytest

from troth.node.configuration import AskedRouter, NodeInitOptions, load, render
from troth.node.earning.policy import UNPAID_ORDERS, EarningPolicy
from troth.node.errors import ConfigError
from troth.node.registration.asking import ask_of
from troth.node.registration.membership import asks_of
from troth.protocol.amounts import COIN
from troth.protocol.market.types import Ask
from troth.protocol.types import Segment

FACTORY, BANK = "0x" + "11" * 20, "0x" + "22" * 20


def written(folder: Path, text: str | None = None, **changes: str) -> Path:
    plain = {
        "rpc": "http://127.0.0.1:8545", "execution_class": "0x" + "ab" * 32, "model": "m",
        "slice": "0:2", "host": "127.0.0.1", "endpoint": "https://127.0.0.1:9443", "device": "cpu", "factory": FACTORY,
    }  # fmt: skip
    choices = NodeInitOptions(**{**plain, **changes}, segments=("0:2",), port=9443, threads=0, start_block=7)  # type: ignore[arg-type]
    (folder / "node.toml").write_text(text or render(choices))
    return folder


def test_a_market_is_read_back_as_it_was_chosen(tmp_path: Path) -> None:
    configuration = load(written(tmp_path, bank=BANK))
    place = configuration.market
    assert (place.factory, place.bank, place.start_block) == (FACTORY, BANK, 7)
    assert configuration.earning == EarningPolicy()
    assert configuration.earning.limit(fee_cap=5) == 5 * UNPAID_ORDERS


def test_money_may_be_set_and_has_bounds(tmp_path: Path) -> None:
    text = render_with(tmp_path, "[earning]\n", "[earning]\nunpaid = 1000\n")
    assert load(written(tmp_path, text)).earning.limit(fee_cap=5) == 1000
    with pytest.raises(ConfigError, match="gas_share"):
        load(written(tmp_path, render_with(tmp_path, "gas_share = 0.02", "gas_share = 2.0")))
    with pytest.raises(ConfigError, match="limit"):
        load(written(tmp_path, render_with(tmp_path, "[earning]\n", "[earning]\nlimit = 3\n")))


def render_with(folder: Path, old: str, new: str) -> str:
    text = (written(folder) / "node.toml").read_text()
    assert old in text
    return text.replace(old, new)


def test_a_node_names_its_market(tmp_path: Path) -> None:
    without = render_with(tmp_path, "[market]\n", "[markt]\n").split("[markt]")[0]
    rest = (written(tmp_path) / "node.toml").read_text().split("[node]")[1]
    with pytest.raises(ConfigError, match="market"):
        load(written(tmp_path, without + "[node]" + rest))
    with pytest.raises(ConfigError, match="contract"):
        load(written(tmp_path, render_with(tmp_path, "[chain]\n", f'[chain]\ncontract = "{BANK}"\n')))
    with pytest.raises(ConfigError, match=r"market\.factory is no address"):
        load(written(tmp_path, factory="0x12"))


def test_asks_name_every_segment_once() -> None:
    halves = (Segment(0, 1), Segment(1, 2))
    assert asks_of(["1,2,3"], halves, COIN) == dict.fromkeys(halves, Ask(1, 2, 3))
    assert asks_of(["0:1=1,2,3", "1:2=4,5,6"], halves, COIN)[halves[1]] == Ask(4, 5, 6)
    for texts in ([], ["0:1=1,2,3"], ["1,2,3", "0:2=1,2,3"]):
        with pytest.raises(ConfigError, match="ask"):
            asks_of(texts, halves, COIN)
    for text in ("1,2", "a,b,c", "-1,2,3", f"{2**64},1,1"):
        with pytest.raises(ConfigError):
            ask_of(text)


def test_the_router_is_asked_where_the_file_says_so_and_nowhere_else(tmp_path: Path) -> None:
    assert load(written(tmp_path)).router is None
    assert load(written(tmp_path, router=True)).router == AskedRouter()  # type: ignore[arg-type]
    text = (written(tmp_path, router=True) / "node.toml").read_text()  # type: ignore[arg-type]
    named = text.replace('by = "any"', 'by = "nat-pmp"\ngateway = "192.168.1.1"')
    assert load(written(tmp_path, named)).router == AskedRouter("nat-pmp", "192.168.1.1")
    for gateway in ("8.8.8.8", "router.example", "192.168.1.1:5351"):
        with pytest.raises(ConfigError, match="gateway"):
            load(written(tmp_path, named.replace("192.168.1.1", gateway)))
    with pytest.raises(ConfigError, match="no port of its router"):
        load(written(tmp_path, text + f'\n[tunnel]\nscheduler = "{FACTORY}"\n'))
