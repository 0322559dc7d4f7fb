"""Nodes that write by a request's grammar and penalties, nodes that say they do, and grammars that nobody computes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.client_network import write_spelling_model
from support.order_network import Network, Ordered, build
from tokenizers import Tokenizer

from troth.client.choices import SamplingChoices
from troth.client.orders.asking import _Question
from troth.client.orders.wishes import Wish
from troth.node.engine.interface import SessionKey
from troth.node.orders import choosing
from troth.protocol.errors import InvalidGrammar
from troth.protocol.grammar import Grammar
from troth.protocol.market.life import Acknowledged, Rejected, live
from troth.protocol.market.signed import Opinion
from troth.protocol.tensors import tokens_to_bytes
from troth.protocol.transforms import Transforms

SCHEMA = {"type": "array", "items": {"enum": [17, 204]}, "minItems": 2, "maxItems": 3}
MASKED = Transforms(grammar=Grammar(json.dumps(SCHEMA)))
END = 0


def spelling(network: Network, folder: Path) -> Tokenizer:
    """All nodes have the tokenizer that grammars are masked by."""
    text = write_spelling_model(folder / "spelling").tokenizer
    for node in network.nodes.values():
        node.engine.tokenizer = text
    return Tokenizer.from_str(text)


async def opinions(network: Network, ordered: Ordered) -> set[Opinion]:
    parts = tuple([await network.check(ordered, segment) for segment in range(len(network.ends))])
    ending = live(network.journey(ordered, parts), network.view(ordered.order.message))
    said = {verdict.message.opinion for verdict in parts[-1].verdicts.values()}
    assert isinstance(ending, Acknowledged if said == {Opinion.ACCEPT} else Rejected)
    return said


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"ends": (2,)}, {"ends": (1, 2)}, {"exact": True, "tiles": 0}], ids=str)
@pytest.mark.parametrize("temperature", [0, 800_000])
async def test_an_answer_by_a_grammar_is_accepted_in_every_class(
    tmp_path: Path, changes: dict[str, Any], temperature: int
) -> None:
    network = build(tmp_path, **changes)
    tokenizer = spelling(network, tmp_path)
    asked = network.order(max_tokens=40, end_tokens=(END,), transforms=MASKED, temperature=temperature)
    ordered = await network.serve(asked)
    said = json.loads(tokenizer.decode(ordered.tokens))
    assert set(said) <= {17, 204}
    assert ordered.tokens[-1] == END
    assert await opinions(network, ordered) == {Opinion.ACCEPT}


LIES: dict[str, Any] = {
    "the mask is ignored": MASKED,
    "penalties are ignored": Transforms(frequency=2_000_000, repetition=2_000_000),
    "biases are ignored": Transforms(biases=((40, 100_000_000),)),
}


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"ends": (2,)}, {"ends": (1, 2)}, {"exact": True, "tiles": 0}], ids=str)
@pytest.mark.parametrize("lie", LIES)
async def test_a_node_that_leaves_the_rules_out_is_rejected_in_every_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], lie: str
) -> None:
    """Every row and state of it is honest: only the tokens are not those that the rules leave."""
    network = build(tmp_path, **changes)
    spelling(network, tmp_path)
    asked = network.order(max_tokens=24, end_tokens=(END,), transforms=LIES[lie])
    monkeypatch.setattr(choosing, "_rule", lambda work, position: None)
    ordered = await network.serve(asked)
    assert await opinions(network, ordered) == {Opinion.REJECT}


async def test_a_grammar_that_does_not_compile_is_refused_before_anything_is_computed(tmp_path: Path) -> None:
    network = build(tmp_path)
    spelling(network, tmp_path)
    heavy = Grammar(json.dumps({"type": "string", "pattern": "a{1000}{1000}{1000}", "minLength": 3}))
    foreign = Grammar(json.dumps(SCHEMA), rules="other-2/1")
    for grammar in (heavy, foreign):
        asked = network.order(end_tokens=(END,), transforms=Transforms(grammar=grammar))
        prompt, node = asked.request.prompt_tokens, network.nodes[asked.nodes[0]]
        header, payload = network.first(
            asked, 0, network.papers(asked, 0), tokens_to_bytes(prompt), count=len(prompt), emit=True
        )
        calls = node.engine.calls
        with pytest.raises(InvalidGrammar):
            await node.ask(header, payload)
        assert node.engine.calls == calls
        assert node.context.stores.words.begun(asked.order_id, 0, "infer") is None
        assert SessionKey(asked.order_id, 0, 0) not in node.engine._lasts


def test_the_rest_of_an_answer_is_ordered_under_the_same_rules() -> None:
    """What was written counts as written: the grammar goes on where it was, and so do the penalties."""
    wish = Wish(SamplingChoices(9, transforms=MASKED))
    prompt, rest = _Question((5, 6), wish, shown=[7, 8]).rest()
    assert prompt == (5, 6, 7, 8)
    assert (rest.choices.max_tokens, rest.choices.transforms.written) == (7, 2)
    assert rest.choices.transforms.grammar == MASKED.grammar
    assert _Question((5, 6), Wish(SamplingChoices(9)), shown=[7]).rest()[1].choices.transforms.written == 0
