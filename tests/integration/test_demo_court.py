"""`troth demo court` as a user runs it: real processes, SmolLM2, and every line that the documents promise."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from troth.demo import court_play
from troth.demo.court_play import FALSE, TRUE, RingNetwork
from troth.testnet.colluding import token_of
from troth.testnet.display import Display
from troth.testnet.network import FAVOURED_SEATS
from troth.testnet.weights import prepare_model

MODELS = Path(__file__).resolve().parents[2] / ".troth"
MONEY = re.compile(
    r"taken of a\d's stake of [\d,]+ wei: (?P<taken>[\d,]+) wei.*"
    r"to a9: (?P<paid>[\d,]+) wei: a tenth, and (?P<gas>[\d,]+) wei for its gas of (?P<spent>[\d,]+) wei.*"
    r"burnt: (?P<burnt>[\d,]+) wei",
    re.DOTALL,
)


def test_all_but_one_node_are_the_rings(tmp_path: Path) -> None:
    network = RingNetwork(tmp_path, MODELS, court_play.plan())
    assert network.honest.name == list(network.nodes)[-1] == "a9"
    seats = [network._seats_of(name) for name in network.nodes]
    assert seats == [FAVOURED_SEATS] * 8 + [1]


@pytest.mark.model
def test_a_word_of_several_tokens_is_refused() -> None:
    prepare_model(MODELS, court_play.plan(), Display(Console(file=io.StringIO())))
    tokenizer = (MODELS / "models" / "smollm2-135m" / "tokenizer.json").read_text()
    assert len({token_of(tokenizer, TRUE), token_of(tokenizer, FALSE)}) == 2
    with pytest.raises(ValueError, match="tokens of this model"):
        token_of(tokenizer, "antidisestablishmentarianism")


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.model
@pytest.mark.chain
@pytest.mark.timeout(1800)
def test_one_node_overturns_a_ring_that_every_check_believed(tmp_path: Path) -> None:
    said = io.StringIO()
    court_play.play(tmp_path, MODELS, Display(Console(file=said, width=200)))
    text = said.getvalue()
    assert re.search(r"checked: a\d, a\d, a\d were drawn to verify, and all 3 of them accept", text)
    assert "a9: troth node accuse answer.evidence, which sends nothing yet" in text
    money = MONEY.search(text)
    assert money is not None
    taken, paid, gas, spent, burnt = (int(value.replace(",", "")) for value in money.groups())
    assert taken == paid + burnt
    assert paid == taken // 10 + gas
    assert 0 < gas <= spent
    assert "troth audit market weighed the proof again, and names the convict" in text
    # Nothing is left behind.
    assert list(tmp_path.iterdir()) == []
