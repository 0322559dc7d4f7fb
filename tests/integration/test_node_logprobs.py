"""What the last segment's inferencer says of a token: transformers' own log probabilities, once and again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import load_file  # noqa: E402
from support.node_network import PROMPT, VOCABULARY, Network, build, countersigned, tiny_model  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

from troth.node.errors import BadInput  # noqa: E402
from troth.node.models.folder import ModelFolder  # noqa: E402
from troth.protocol.logprobs import logprobs_from_bytes  # noqa: E402
from troth.protocol.tensors import tokens_to_bytes  # noqa: E402
from troth.protocol.wire import Forward, Rows  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    return tiny_model(tmp_path_factory.mktemp("models") / "tiny")


def truth(folder: ModelFolder, tokens: tuple[int, ...]) -> np.ndarray:
    """Log probabilities of what follows the tokens, by transformers in float32."""
    model = LlamaForCausalLM(LlamaConfig.from_pretrained(folder.path)).eval()
    model.load_state_dict(load_file(folder.path / "model.safetensors"), strict=False)
    model.tie_weights()
    with torch.inference_mode():
        found: np.ndarray = torch.log_softmax(model(torch.tensor([tokens])).logits[0, -1], dim=-1).numpy()
    return found


async def question(network: Network, **fields: Any) -> tuple[Forward, bytes]:
    """The message that asks the last segment for the first token."""
    count, node = len(PROMPT), network.parties[0][0]
    lower, data = await network.ask(node, *network.first_message(0, tokens_to_bytes(PROMPT), count))
    return network.first_message(
        1, tokens_to_bytes(PROMPT) + data, count, upstream=lower.row,
        countersignature=countersigned(network, lower.row), **fields,
    )  # fmt: skip


async def answer(network: Network, message: tuple[Forward, bytes]) -> Rows:
    rows, _ = await network.ask(network.parties[1][0], *message)
    assert isinstance(rows, Rows)
    return rows


@pytest.mark.parametrize(("dtype", "temperature"), [(0, 0), (0, 2_000_000), (1, 700_000)])
@pytest.mark.parametrize("count", [0, 5, 20])
async def test_values_are_the_models_own(
    folder: ModelFolder, tmp_path: Path, dtype: int, temperature: int, count: int
) -> None:
    """Whatever the temperature (and top_p, 0.95 here), by which the token is chosen."""
    network = build(folder, tmp_path, dtype=dtype, temperature=temperature)
    rows = await answer(network, await question(network, emit=True, logprobs=count))
    assert rows.token is not None
    assert isinstance(rows.logprobs, bytes)
    found = logprobs_from_bytes(rows.logprobs, rows.token, count=count, vocabulary=VOCABULARY)
    expected, slack = truth(folder, PROMPT), 0.2 if dtype else 1e-4
    assert found.chosen == pytest.approx(expected[rows.token], abs=slack)
    np.testing.assert_allclose([value for _, value in found.top], np.sort(expected)[::-1][:count], atol=slack)
    for token, value in found.top:
        assert value == pytest.approx(expected[token], abs=slack)


async def test_a_repeated_question_is_told_the_same(folder: ModelFolder, tmp_path: Path) -> None:
    network = build(folder, tmp_path)
    message = await question(network, emit=True, logprobs=7)
    first = await answer(network, message)
    again = await answer(network, message)
    assert (again.token, again.logprobs, again.row) == (first.token, first.logprobs, first.row)


@pytest.mark.parametrize("temperature", [0, 700_000])
async def test_the_token_and_its_row_do_not_depend_on_being_asked(
    folder: ModelFolder, tmp_path: Path, temperature: int
) -> None:
    asked, plain = (build(folder, tmp_path / name, temperature=temperature) for name in ("asked", "plain"))
    told = await answer(asked, await question(asked, emit=True, logprobs=3))
    bare = await answer(plain, await question(plain, emit=True))
    assert (told.token, told.row, told.finished) == (bare.token, bare.row, bare.finished)
    assert bare.logprobs is msgspec.UNSET


async def test_without_a_token_there_is_nothing_to_tell(folder: ModelFolder, tmp_path: Path) -> None:
    network = build(folder, tmp_path)
    with pytest.raises(BadInput, match="belong to a token"):
        await answer(network, await question(network, logprobs=3))
