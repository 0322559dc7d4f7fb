"""The logits processor takes, for every row of a batch that changes, the token that the protocol's rule chooses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.byte_language import END, LANGUAGE
from support.byte_language import tokenizer as byte_tokenizer

pytest.importorskip("vllm", reason="vLLM is not installed: troth node engine install vllm")
torch = pytest.importorskip("torch")

from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality  # noqa: E402

from troth.node.engine.vllm.noise import PublicNoise  # noqa: E402
from troth.node.engine.vllm.sampling_words import SamplingDraw, draw_to_words  # noqa: E402
from troth.protocol.grammar import Grammar  # noqa: E402
from troth.protocol.masks import text_rules  # noqa: E402
from troth.protocol.request import Request  # noqa: E402
from troth.protocol.tokens import Sampling, choose, noise  # noqa: E402
from troth.protocol.transforms import NO_TRANSFORMS, Transforms  # noqa: E402
from troth.protocol.types import ZERO_HASH, Hash32  # noqa: E402

pytestmark = pytest.mark.vllm

VOCABULARY = 300
LENGTH = 9


def drawn(
    number: int, temperature: float, top_p: float, transforms: Transforms = NO_TRANSFORMS, *cuts: int
) -> SamplingDraw:
    numbers = (round(temperature * 1_000_000), round(top_p * 1_000_000))
    request = Request(ZERO_HASH, tuple(range(LENGTH)), 64, *numbers, (0,), transforms, *cuts)
    return SamplingDraw(request, Hash32(bytes([number]) * 32))


DRAWS = [
    drawn(0, 0.0, 1.0),
    drawn(1, 0.7, 0.9),
    drawn(2, 1.0, 1.0),
    drawn(3, 1.7, 0.5, Transforms(presence=500_000, frequency=250_000, repetition=1_300_000, biases=((7, 900_000),))),
    drawn(4, 1.5, 1.0, NO_TRANSFORMS, 3),
    drawn(5, 1.5, 0.9, Transforms(presence=500_000), 20, 100_000),
]


def parameters(draw: SamplingDraw | None) -> Any:
    return SimpleNamespace(extra_args=None if draw is None else draw_to_words(draw))


def expected(row: np.ndarray, draw: SamplingDraw, position: int, said: Sequence[int] = ()) -> int:
    sampling, rules = Sampling.of(draw.request), text_rules(draw.request, len(row), "")
    gumbel = noise(draw.seed, position, len(row)) if sampling.temperature else None
    if rules is not None:
        rules.take_all(said)
    return choose(row, sampling, gumbel, None if rules is None else rules.row())


def processor() -> PublicNoise:
    return PublicNoise(None, torch.device("cpu"), False)


def test_every_row_gets_the_token_of_the_rule() -> None:
    made, prompt, outputs = processor(), list(range(LENGTH)), [[] for _ in DRAWS]
    added = [(index, parameters(draw), prompt, outputs[index]) for index, draw in enumerate(DRAWS)]
    made.update_state(BatchUpdate(len(DRAWS), removed=[], added=added, moved=[]))
    generator = torch.Generator().manual_seed(1)
    for step in range(20):
        logits = torch.randn(len(DRAWS), VOCABULARY, generator=generator) * 3
        wanted = [expected(logits[index].numpy(), draw, 8 + step, outputs[index]) for index, draw in enumerate(DRAWS)]
        assert made.apply(logits).argmax(dim=1).tolist() == wanted
        for output, token in zip(outputs, wanted, strict=True):
            output.append(token)
        made.update_state(None)


def test_rows_that_move_and_go_take_their_noise_along() -> None:
    made = processor()
    added = [(index, parameters(DRAWS[index]), [1] * (index + 1), []) for index in range(3)]
    made.update_state(BatchUpdate(3, removed=[], added=added, moved=[]))
    made.update_state(BatchUpdate(3, removed=[], added=[], moved=[(0, 2, MoveDirectionality.SWAP)]))
    made.update_state(BatchUpdate(2, removed=[1], added=[], moved=[(2, 1, MoveDirectionality.UNIDIRECTIONAL)]))
    logits = torch.randn(2, VOCABULARY, generator=torch.Generator().manual_seed(2))
    wanted = [expected(logits[0].numpy(), DRAWS[2], 2), expected(logits[1].numpy(), DRAWS[0], 0)]
    assert made.apply(logits).argmax(dim=1).tolist() == wanted


def test_a_grammar_masks_as_it_does_elsewhere(tmp_path: Path) -> None:
    """The tokenizer is that of vLLM's own model folder; a text that goes on counts what was written."""
    (tmp_path / "tokenizer.json").write_text(byte_tokenizer().to_str())
    config = SimpleNamespace(model_config=SimpleNamespace(model=str(tmp_path)))
    grammar = Grammar('{"type": "array", "items": {"type": "integer"}, "minItems": 2}')
    (bracket,) = LANGUAGE.tokenizer.encode("[", add_special_tokens=False).ids
    request = Request(ZERO_HASH, (5, bracket), 64, 0, 1_000_000, (END,), Transforms(grammar=grammar, written=1))
    made, output = PublicNoise(config, torch.device("cpu"), False), list[int]()
    added = [(0, parameters(SamplingDraw(request, Hash32(bytes(32)))), list(request.prompt_tokens), output)]
    made.update_state(BatchUpdate(1, removed=[], added=added, moved=[]))
    rules = text_rules(request, VOCABULARY, byte_tokenizer().to_str())
    assert rules is not None
    generator = torch.Generator().manual_seed(3)
    for _ in range(12):
        logits = torch.randn(1, VOCABULARY, generator=generator)
        wanted = choose(logits[0].numpy(), Sampling(0.0, 1.0), None, rules.row())
        assert made.apply(logits).argmax(dim=1).tolist() == [wanted]
        output.append(wanted)
        rules.take(wanted)
        made.update_state(None)


def test_a_row_without_a_draw_is_left_alone() -> None:
    made = processor()
    made.update_state(BatchUpdate(1, removed=[], added=[(0, parameters(DRAWS[1]), [1], [])], moved=[]))
    made.update_state(BatchUpdate(1, removed=[], added=[(0, parameters(None), [1], [])], moved=[]))
    logits = torch.randn(1, VOCABULARY)
    assert torch.equal(made.apply(logits.clone()), logits)


def test_words_that_are_no_draw_never_reach_the_engine() -> None:
    with pytest.raises(ValueError, match="no draw"):
        PublicNoise.validate_params(SimpleNamespace(extra_args={"troth": [9, 9, "zz"]}))
    PublicNoise.validate_params(parameters(DRAWS[1]))
