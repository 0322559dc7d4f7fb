"""The real Gemma 3 270M: imported from its packages, and served by two nodes with half of the layers each."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from troth.node.models.packages import PACKAGED  # noqa: E402

SOURCE = "gemma3-270m"
if not all(find_spec(module) for module in PACKAGED[SOURCE].modules):
    pytest.skip(f"Gemma 3 270M is not installed: {PACKAGED[SOURCE].install}", allow_module_level=True)

from support.packaged_models import packaged_model  # noqa: E402

from troth.client.language import Language, LanguageFiles, check_files  # noqa: E402
from troth.node.engine.interface import SessionKey  # noqa: E402
from troth.node.engine.torch_engine import TORCH_DTYPES, TorchEngine  # noqa: E402
from troth.node.models.descriptor import describe  # noqa: E402
from troth.node.models.folder import ModelFolder  # noqa: E402
from troth.node.models.thresholds import shipped_calibration  # noqa: E402
from troth.protocol.identifiers import model_id  # noqa: E402
from troth.protocol.types import Hash32, Segment  # noqa: E402
from troth.scheduler.served import ModelTexts  # noqa: E402

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(900)]
LOWER, UPPER = Segment(0, 9), Segment(9, 18)
QUESTION = "What is the capital of France?"
LENGTH = 16


@pytest.fixture(scope="module")
def folder() -> ModelFolder:
    torch.set_num_threads(1)
    return packaged_model(SOURCE)


@pytest.fixture(scope="module")
def tokenizer(folder: ModelFolder) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder.path)


def asked(tokenizer: Any) -> list[int]:
    chat = [{"role": "user", "content": QUESTION}]
    tokens: list[int] = tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
    return tokens


def test_the_conversion_is_the_same_everywhere(folder: ModelFolder) -> None:
    descriptor = describe(folder, 1)
    assert (descriptor.layers, descriptor.hidden_size, descriptor.vocabulary) == (18, 640, 262_144)
    assert descriptor.weights_root.hex() == "7553e4a803122c966881b100d18c61e2249d628b1cbaf836d9dd9f13e22d315a"
    old = describe(folder, 1, version=1)
    assert old.weights_root.hex() == "91d0f5121dde08f6c16986333174f281a9e2addea2e51053190bfb3da11f719e"


def test_its_calibrated_class_ships(folder: ModelFolder) -> None:
    found = shipped_calibration(Hash32(model_id(describe(folder, 1))), "bfloat16")
    assert found is not None
    assert found.source == "gemma3-270m-bfloat16.json"


def test_a_client_asks_in_the_words_of_the_model(folder: ModelFolder, tokenizer: Any) -> None:
    texts = ModelTexts.load(folder.path)
    files = LanguageFiles(texts.tokenizer, texts.chat_template, texts.config)
    check_files(files, folder.architecture)
    language = Language.load(files)
    prompt = language.prompt_tokens([{"role": "user", "content": QUESTION}])
    assert list(prompt) == asked(tokenizer)
    assert language.decode(list(prompt)) == f"Question: {QUESTION}\nAnswer:"
    assert language.end_tokens == (tokenizer.eos_token_id,)


@pytest.mark.parametrize("dtype", [0, 1])
async def test_two_slices_give_the_tokens_of_the_whole_model(folder: ModelFolder, tokenizer: Any, dtype: int) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder.path, dtype=TORCH_DTYPES[dtype])
    # Longer than the window of 512 positions that most layers attend to.
    essay = tokenizer("The history of the city of Paris. " * 75)["input_ids"]
    answers = []
    for prompt in (asked(tokenizer), essay):
        tokens = await decode(folder, dtype, prompt)
        expected = model.generate(torch.tensor([prompt]), max_new_tokens=LENGTH, do_sample=False, eos_token_id=None)
        assert tokens == expected[0][len(prompt) :].tolist()
        answers.append(tokenizer.decode(tokens))
    assert answers[0].startswith(" Paris")


async def decode(folder: ModelFolder, dtype: int, prompt: list[int]) -> list[int]:
    lower, upper = TorchEngine(folder, LOWER, dtype), TorchEngine(folder, UPPER, dtype)
    first, last = SessionKey(bytes(32), 0, 0), SessionKey(bytes(32), 1, 0)
    start, inputs, tokens = 0, np.array(prompt), list[int]()
    while len(tokens) < LENGTH:
        rows = (await lower.forward(first, LOWER, start, inputs)).rows
        states = (await upper.forward(last, UPPER, start, rows)).rows
        tokens.append(int((await upper.logits(states[-1:])).rows[0].argmax()))
        start, inputs = start + len(inputs), np.array(tokens[-1:])
    return tokens
