"""Exact classes of quantised weights, torch engine: one for every format, and orders over two segments on tabs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import load_file, save_file  # noqa: E402
from support.order_network import Network, Node, Ordered, build  # noqa: E402
from support.quantised_checkpoints import FORMS, WEIGHTS, write_quantised  # noqa: E402
from support.tiny_decoders import LAYERS, VOCABULARY  # noqa: E402

from troth.node.engine.exact_layers import ExactSlice  # noqa: E402
from troth.node.engine.torch_engine import TorchEngine  # noqa: E402
from troth.node.models.execution_class import ClassOptions, ExactMachine  # noqa: E402
from troth.node.models.folder import ModelFolder, open_folder  # noqa: E402
from troth.node.models.report import describe_with_progress, report_of  # noqa: E402
from troth.protocol.market.life import Acknowledged, Ending, Rejected, live  # noqa: E402
from troth.protocol.market.signed import Opinion  # noqa: E402
from troth.protocol.types import Hash32, ModelDescriptor, Segment  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.torch]

WHOLE = Segment(0, LAYERS)
ENDS = (2, LAYERS)
POSITIONS = 512
"""A class's probe takes 312."""
MODEL = ModelDescriptor("tiny", LAYERS, 32, VOCABULARY, 1, Hash32(b"\x51" * 32))
TOKENS = 17
"""One more than the positions that an exact class computes together."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ModelFolder]:
    room, known = tmp_path_factory.mktemp("quantised"), dict[str, ModelFolder]()

    def folder(form: str) -> ModelFolder:
        if form not in known:
            torch.set_num_threads(1)
            path = write_quantised(form, room / str(len(known)), max_position_embeddings=POSITIONS)
            known[form] = open_folder(path)
        return known[form]

    return folder


def with_one_bit_changed(folder: ModelFolder, path: Path) -> ModelFolder:
    """The least change of a packed word that there is."""
    shutil.copytree(folder.path, path)
    tensors = load_file(path / WEIGHTS)
    name = next(one for one in sorted(tensors) if _is_packed(tensors, one))
    tensors[name].view(torch.uint8).flatten()[0] ^= 1
    save_file(tensors, path / WEIGHTS)
    return open_folder(path)


def _is_packed(tensors: Mapping[str, Any], name: str) -> bool:
    words = ("weight_packed", "qweight", "_blocks", "_proj.weight", "w1.weight")
    return name.endswith(words) and tensors[name].dtype not in {torch.bfloat16, torch.float32, torch.float16}


def network_of(folder: ModelFolder, path: Path) -> Network:
    network = build(path, ends=ENDS, model=MODEL, dtype=1, exact=True, tiles=0)
    for node in network.nodes.values():
        give(node, folder)
    return network


def give(node: Node, folder: ModelFolder) -> None:
    """The node computes this model from now on."""
    _, context, service = node.running
    engine: Any = TorchEngine(folder, WHOLE, 1, threads=1, layers=ExactSlice)
    service._context = replace(context, engine=engine)
    node.started = (engine, service._context, service)


@pytest.mark.parametrize("form", FORMS)
def test_torch_has_an_exact_class_of_every_format(form: str, made: Callable[[str], ModelFolder]) -> None:
    """What `troth model register --exact --engine torch` makes: it runs the probe, in which decode is prefill."""
    report = report_of(made(form), describe_with_progress(made(form), "bfloat16"))
    measured = ClassOptions().measured(report, "tiny", "bfloat16", None, ExactMachine("torch"))
    assert measured.exact
    assert "/torch-" in measured.name


@pytest.mark.parametrize("form", ["gptq", "fp8 in blocks", "mxfp4", "pack-quantized"])
async def test_honest_roots_are_equal_and_one_bit_of_a_packed_word_is_rejected(
    form: str, made: Callable[[str], ModelFolder], tmp_path: Path
) -> None:
    network = network_of(made(form), tmp_path / "network")
    ordered = await network.serve(max_tokens=TOKENS)
    opinions, ending = await judged(network, ordered)
    assert opinions == ({Opinion.ACCEPT}, {Opinion.ACCEPT})
    assert isinstance(ending, Acknowledged)

    ordered = network.order(max_tokens=TOKENS)
    give(network.nodes[ordered.nodes[0]], with_one_bit_changed(made(form), tmp_path / "changed"))
    await network.serve(ordered)
    opinions, ending = await judged(network, ordered)
    assert opinions == ({Opinion.REJECT}, {Opinion.ACCEPT})
    assert ending == Rejected((0,))


async def judged(network: Network, ordered: Ordered) -> tuple[tuple[set[Opinion], ...], Ending]:
    """What verifiers say of each segment, and how the answer ends."""
    checks = tuple([await network.check(ordered, segment) for segment in range(len(ENDS))])
    opinions = tuple({one.message.opinion for one in check.verdicts.values()} for check in checks)
    return opinions, live(network.journey(ordered, checks), network.view(ordered.order.message))
