"""A model folder of one's own computes an answer again, if it is the registered model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.tabs_stage import execution_class_of
from support.tiny_llama import LAYERS, tiny_model

from troth.cases.judging import Inputs
from troth.cases.materials import OrderText
from troth.client.errors import OwnModelUnusable
from troth.client.home import Home
from troth.client.orders.own_check import own_model
from troth.node.engine.interface import SessionKey
from troth.node.engine.loading import torch_engine
from troth.node.errors import ModelError
from troth.node.judging.own_model import FolderModel
from troth.node.models.descriptor import describe
from troth.node.models.folder import ModelFolder
from troth.protocol.request import Request
from troth.protocol.types import Hash32, ModelDescriptor, Segment

pytestmark = pytest.mark.torch

ORDER, CLASS = Hash32(b"\x11" * 32), Hash32(b"\x12" * 32)
SEED = Hash32(b"\x13" * 32)
PROMPT = (3, 9, 27, 4)


async def greedy(folder: ModelFolder, descriptor: ModelDescriptor, count: int) -> tuple[int, ...]:
    """What an honest node writes."""
    engine = torch_engine(folder, Segment(0, LAYERS), execution_class_of(descriptor))
    tokens: list[int] = []
    for _ in range(count):
        text = np.array([*PROMPT, *tokens], dtype=np.int64)
        rows = (await engine.forward(SessionKey(ORDER, 0, len(tokens)), Segment(0, LAYERS), 0, text)).rows
        tokens.append(int(np.argmax((await engine.logits(rows[-1:])).rows)))
    await engine.close()
    return tuple(tokens)


def inputs_of(tokens: tuple[int, ...], span: Segment, before: bytes | None = None) -> Inputs:
    request = Request(CLASS, PROMPT, len(tokens), 0, 1_000_000, ())
    return Inputs(ORDER, CLASS, span, OrderText(request, tokens, SEED), before, span.end == LAYERS)


async def test_a_true_text_is_accepted_and_a_changed_one_is_not(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "tiny")
    descriptor = describe(folder, 0)
    true = await greedy(folder, descriptor, 8)
    false = (*true[:3], (true[3] + 1) % 48, *true[4:])
    model = FolderModel(tmp_path, str(folder.path))
    await model.require(descriptor, execution_class_of(descriptor))
    own = await model.recompute(inputs_of(true, Segment(0, LAYERS)))
    assert own.text is not None
    assert own.text.accepted
    assert own.text.matches == len(true)
    first = await model.recompute(inputs_of(true, Segment(0, 1)))
    assert first.text is None
    split = await model.recompute(inputs_of(true, Segment(1, LAYERS), first.states.tobytes()))
    assert np.allclose(split.states, own.states, atol=1e-4)
    forged = await model.recompute(inputs_of(false, Segment(0, LAYERS)))
    assert forged.text is not None
    assert not forged.text.accepted
    await model.close()
    with pytest.raises(ModelError, match="no model is loaded"):
        await model.recompute(inputs_of(true, Segment(0, LAYERS)))


async def test_another_model_than_the_registered_one_is_refused_in_words(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "tiny")
    descriptor = describe(folder, 0)
    weights = bytearray((folder.path / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder.path / "model.safetensors").write_bytes(bytes(weights))
    async with own_model(Home(tmp_path), str(folder.path)) as model:
        assert model is not None
        with pytest.raises(OwnModelUnusable, match="weights_root differs"):
            await model.require(descriptor, execution_class_of(descriptor))
    async with own_model(Home(tmp_path), "nothing-here") as model:
        assert model is not None
        with pytest.raises(OwnModelUnusable, match="no usable model folder"):
            await model.require(descriptor, execution_class_of(descriptor))
    async with own_model(Home(tmp_path), "") as model:
        assert model is None
