"""Folders that a stranger gave, or changed, at `troth model register` and at a node's start, imported or not."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
import psutil  # noqa: E402
from rich.filesize import decimal  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from support.quantised_checkpoints import write_quantised  # noqa: E402
from support.tiny_decoders import VOCABULARY, write_tiny_decoder  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

from troth.node.engine import loading  # noqa: E402
from troth.node.engine.interface import SessionKey  # noqa: E402
from troth.node.engine.loading import (  # noqa: E402
    file_stamps,
    load_engine,
    require_unchanged,
    watch_weights,
    weight_stamps,
)
from troth.node.engine.vllm.supervision import started_of_same  # noqa: E402
from troth.node.errors import EngineError, ModelError  # noqa: E402
from troth.node.inspection import machine_checks  # noqa: E402
from troth.node.model_command import app  # noqa: E402
from troth.node.models import descriptor as descriptor_module  # noqa: E402
from troth.node.models.descriptor import describe, require_known_numbers  # noqa: E402
from troth.node.models.folder import ModelFolder, open_folder  # noqa: E402
from troth.node.models.holding import held  # noqa: E402
from troth.node.models.importing import import_model  # noqa: E402
from troth.node.models.sources import wanted_files  # noqa: E402
from troth.node.models.tensor_files import raw_tensors  # noqa: E402
from troth.protocol.types import ModelDescriptor, Segment  # noqa: E402
from troth.transport.health import HealthFinding  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow]

WEIGHTS, CONFIG, TOKENIZER, TEMPLATE = "model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja"
SECONDS = 20
KEY = SessionKey(bytes(32), 0, 0)
Bent = Callable[[Path], Any]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    path = write_tiny_decoder("llama", tmp_path_factory.mktemp("original") / "tiny").path
    tokenizer = {"model": {"type": "BPE", "vocab": {str(number): number for number in range(VOCABULARY)}}}
    (path / TOKENIZER).write_text(json.dumps(tokenizer))
    return path


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> ModelFolder:
    return import_model(str(original), tmp_path / "home", "tiny", lambda _line: None)


def pipe(name: str) -> Bent:
    def bent(path: Path) -> None:
        (path / name).unlink(missing_ok=True)
        os.mkfifo(path / name)

    return bent


def link(name: str, target: str | Path) -> Bent:
    def bent(path: Path) -> None:
        (path / name).unlink(missing_ok=True)
        (path / name).symlink_to(target)

    return bent


def out(name: str) -> Bent:
    def bent(path: Path) -> None:
        shutil.copy(path / name, path.parent / "outside")
        link(name, path.parent / "outside")(path)

    return bent


def sparse(path: Path) -> None:
    """Eight terabytes that take no room, as its header says."""
    (path / WEIGHTS).unlink()
    told = {"dtype": "F32", "shape": [1 << 20, 1 << 21], "data_offsets": [0, 1 << 43]}
    head = json.dumps({"model.norm.weight": told}).encode()
    with (path / WEIGHTS).open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        file.truncate(8 + len(head) + (1 << 43))


def text(name: str, data: str) -> Bent:
    return lambda path: (path / name).write_text(data)


def config(**changed: Any) -> Bent:
    return lambda path: (path / CONFIG).write_text(json.dumps({**json.loads((path / CONFIG).read_text()), **changed}))


def tensors(changed: Callable[[dict[str, Any]], Any]) -> Bent:
    def bent(path: Path) -> None:
        found = {name: value.clone() for name, value in load_file(path / WEIGHTS).items()}
        changed(found)
        (path / WEIGHTS).unlink()
        save_file(found, path / WEIGHTS)

    return bent


BENT: dict[str, tuple[Bent, str]] = {
    "pipe of the configuration": (pipe(CONFIG), "this is no file, as a model's are"),
    "pipe of weights": (pipe(WEIGHTS), "this is no file, as a model's are"),
    "pipe of a template": (pipe(TEMPLATE), "this is no file, as a model's are"),
    "device as the configuration": (link(CONFIG, "/dev/zero"), "this is no file, as a model's are"),
    "device as the tokenizer": (link(TOKENIZER, "/dev/random"), "this is no file, as a model's are"),
    "device as weights": (link(WEIGHTS, "/dev/zero"), "a link leads out of the model's folder: model.safetensors"),
    "nothing but size": (sparse, "wrong shape"),
    "weights elsewhere": (out(WEIGHTS), "a link leads out of the model's folder: model.safetensors"),
    "tokenizer elsewhere": (out(TOKENIZER), "a link leads out of the model's folder: tokenizer.json"),
    "another configuration": (config(hidden_size=64), "a tensor has the wrong shape"),
    "more layers": (config(num_hidden_layers=5), "tensors are missing"),
    "another tokenizer": (text(TOKENIZER, '{"model": {"vocab": {"a": 500}}}'), "the tokenizer is another model's"),
    "a tensor less": (tensors(lambda found: found.pop("model.norm.weight")), "tensors are missing"),
    "quantised, it says": (config(quantization_config={"quant_method": "fp8"}), "and none is: fp8"),
    "unknown quantisation": (config(quantization_config={"quant_method": "magic"}), "not served; awq, gptq, fp8"),
}  # fmt: skip


@pytest.mark.parametrize("name", BENT)
def test_a_hostile_folder_is_not_registered(name: str, folder: ModelFolder, tmp_path: Path) -> None:
    """The command, as an operator gives it; no chain, no key and no weight is asked for before it says why not."""
    bent, said = BENT[name]
    bent(folder.path)
    began = time.process_time()
    command = ["register", str(folder.path), "--factory", "0x" + "01" * 20, "--home", str(tmp_path / "home")]
    found = CliRunner().invoke(app, command)
    assert found.exit_code
    assert isinstance(found.exception, ModelError), found.exception
    assert said in f"{found.exception.what}: {found.exception.value}"
    assert time.process_time() - began < SECONDS


def start(folder: ModelFolder, descriptor: ModelDescriptor, *, verify: bool = True, engine: str = "torch") -> Any:
    place: Any = SimpleNamespace(
        folder=folder.path, model=str(folder.path), engine=engine, slice=Segment(0, folder.layers), device="cpu",
        cache_bytes=1 << 20, threads=1, positions=64, graphs=False, cards=1,
    )  # fmt: skip
    return load_engine(place, SimpleNamespace(dtype=0, exact=False), descriptor, verify=verify)


@pytest.mark.parametrize("name", BENT)
def test_a_node_does_not_start_with_a_hostile_folder(name: str, folder: ModelFolder) -> None:
    descriptor = describe(folder, 0)
    BENT[name][0](folder.path)
    began = time.process_time()
    for verify in (True, False):
        with pytest.raises(ModelError):
            start(folder, descriptor, verify=verify)
    assert time.process_time() - began < SECONDS


@pytest.mark.parametrize("name", BENT)
def test_the_doctor_of_a_node_says_what_is_wrong_with_a_folder(name: str, folder: ModelFolder) -> None:
    """It ends, whatever lies there: a file of eight terabytes was hashed."""
    place: Any = SimpleNamespace(folder=folder.path, model=str(folder.path), slice=Segment(0, folder.layers))
    registered = describe(folder, 0)

    def looked() -> HealthFinding:
        return machine_checks._guarded("model", lambda own: machine_checks._model(own, registered), place)

    said: list[str] = []
    assert machine_checks._model(place, registered, said.append).seen == f"{folder.path} is the registered model"
    size = sum(one.length for one in raw_tensors(folder.path))
    assert len(said) == 2, "before the model's code is loaded, and before weights are hashed"
    assert f"reading {folder.path}" in said[0]
    assert decimal(size) in said[1]
    assert looked().seen == f"{folder.path} is the registered model"
    BENT[name][0](folder.path)
    began, found = time.process_time(), looked()
    assert not found.ok
    assert time.process_time() - began < SECONDS


SWAPPED: dict[str, Bent] = {
    "configuration": config(rms_norm_eps=0.5),
    "tokenizer": text(TOKENIZER, json.dumps({"model": {"type": "BPE", "vocab": {"a": 1, "b": 2}}})),
    "template": text(TEMPLATE, "{{ messages }} and another word"),
}


@pytest.mark.parametrize("name", SWAPPED)
def test_texts_of_another_model_are_seen_even_where_weights_are_not_checked(name: str, folder: ModelFolder) -> None:
    """--no-verify-weights spares the hours of hashing, and nothing else: other texts are another model at once."""
    descriptor = describe(folder, 0)
    SWAPPED[name](folder.path)
    with pytest.raises(ModelError, match="is not the registered model: architecture differs"):
        start(folder, descriptor, verify=False)


@pytest.mark.parametrize("name", SWAPPED)
async def test_texts_that_are_swapped_below_a_node_end_it(name: str, folder: ModelFolder) -> None:
    """An engine that is started again would read them, and sign for another model."""
    place: Any = SimpleNamespace(folder=folder.path, model=str(folder.path))
    before = weight_stamps(folder)
    SWAPPED[name](folder.path)
    with pytest.raises(ModelError, match="were changed"):
        await asyncio.wait_for(watch_weights(place, before), SECONDS)


@pytest.mark.parametrize("name", [CONFIG, TOKENIZER])
def test_who_sets_the_time_of_a_text_back_hides_nothing(name: str, folder: ModelFolder) -> None:
    before, path = weight_stamps(folder), folder.path / name
    was, data = path.stat(), path.read_bytes()
    path.chmod(0o600)
    assert require_unchanged(folder, before).keys() == before.keys()
    bent = data.replace(b"1", b"3", 1)
    assert len(bent) == len(data)
    path.write_bytes(bent)
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    with pytest.raises(ModelError, match=f"were changed: {name}"):
        require_unchanged(folder, before)


@pytest.mark.parametrize("name", [CONFIG, TOKENIZER, WEIGHTS])
def test_a_pipe_that_is_put_in_below_a_node_holds_nothing_up(name: str, folder: ModelFolder) -> None:
    before = weight_stamps(folder)
    pipe(name)(folder.path)
    with pytest.raises(ModelError):
        require_unchanged(folder, before)


async def test_a_tokenizer_that_is_swapped_after_the_start_masks_no_other_tokens(folder: ModelFolder) -> None:
    """It was read when a grammar first needed it, minutes after it was compared."""
    engine = start(folder, describe(folder, 0))
    text(TOKENIZER, '{"model": {"vocab": {"a": 2, "b": 1}}}')(folder.path)
    assert json.loads(engine.tokenizer)["model"]["vocab"]["5"] == 5
    await engine.close()


@pytest.mark.parametrize("bent", ["scales", "qzeros"])
def test_vllm_is_not_started_with_quantised_weights_that_do_not_fit(bent: str, tmp_path: Path) -> None:
    """A folder that was never imported, registered by whoever made it: refused before vLLM reads a word of it."""
    path = write_quantised("awq", tmp_path / "awq")
    name = f"model.layers.0.self_attn.q_proj.{bent}"
    tensors(lambda found: found.pop(name))(path)
    folder = open_folder(path)
    with pytest.raises(ModelError, match=f"a part of a quantised weight is missing: {name}"):
        start(folder, describe(folder, 0), engine="vllm")


def test_what_is_honest_is_registered_and_started(folder: ModelFolder, tmp_path: Path) -> None:
    """The same command, as far as the key that it needs."""
    command = ["register", "tiny", "--factory", "0x" + "01" * 20, "--home", str(tmp_path / "home")]
    found = CliRunner().invoke(app, command)
    assert "no keyfile" in str(found.exception)
    assert start(folder, describe(folder, 0), verify=False).layers == folder.layers


def nan(tensors: dict[str, Any]) -> None:
    tensors["model.norm.weight"][3] = float("nan")


@pytest.mark.parametrize("engine", ["torch", "vllm"])
@pytest.mark.parametrize("verify", [True, False])
def test_a_registered_model_that_holds_nan_is_not_started(engine: str, verify: bool, folder: ModelFolder) -> None:
    """Nobody imported this folder, and its root is the registered one: nothing else looks at its numbers."""
    tensors(nan)(folder.path)
    descriptor = describe(folder, 0)
    for _ in range(2):
        with pytest.raises(ModelError, match=r"hold NaN or infinity: model\.norm\.weight in model\.safetensors"):
            start(folder, descriptor, verify=verify, engine=engine)


def test_numbers_are_looked_at_once_and_again_after_a_change(
    folder: ModelFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    look = descriptor_module.require_numbers
    monkeypatch.setattr(descriptor_module, "require_numbers", lambda *a, **k: (seen.append(1), look(*a, **k)))
    require_known_numbers(folder)
    describe(folder, 0)
    require_known_numbers(folder)
    assert len(seen) == 1
    tensors(nan)(folder.path)
    with pytest.raises(ModelError, match="NaN"):
        require_known_numbers(folder)


class Reader:
    """In the place of an engine that is started: reads the weights, while somebody does something to the folder."""

    def __init__(self, folder: ModelFolder, meanwhile: Bent) -> None:
        self.dead = asyncio.Event()
        self._folder, self._meanwhile = folder, meanwhile

    async def start(self) -> Reader:
        self._meanwhile(self._folder.path)
        self.read = (self._folder.path / WEIGHTS).read_bytes()
        return self

    async def close(self) -> None:
        self.dead.set()


def there_and_back(path: Path) -> None:
    """Others for the moment in which an engine reads; the ones that were checked lie there afterwards."""
    kept = path / WEIGHTS
    kept.rename(path / "kept")
    shutil.copy(path / "kept", kept)
    kept.unlink()
    (path / "kept").rename(kept)


def folder_there_and_back(path: Path) -> None:
    path.rename(path.with_name("kept"))
    shutil.copytree(path.with_name("kept"), path)
    shutil.rmtree(path)
    path.with_name("kept").rename(path)


@pytest.mark.parametrize(
    ("meanwhile", "said"),
    [
        (tensors(lambda found: found["model.norm.weight"].add_(1)), "were changed: model.safetensors"),
        (config(rms_norm_eps=0.5), "were changed: config.json"),
        (there_and_back, "were touched while the engine read them"),
        (folder_there_and_back, "were touched while the engine read them"),
    ],
)
async def test_an_engine_that_read_other_files_than_were_checked_serves_nothing(
    meanwhile: Bent, said: str, folder: ModelFolder
) -> None:
    """vLLM reads whenever it is started: with the first request, and after it died, both between two looks."""
    before = weight_stamps(folder)
    reader = Reader(folder, meanwhile)
    with pytest.raises(EngineError) as raised:
        await started_of_same(reader.start, partial(file_stamps, folder, before))
    assert said in f"{raised.value.what}: {raised.value.value}"
    assert reader.dead.is_set()
    assert reader.read


async def test_an_engine_is_not_even_started_where_files_were_exchanged_before(folder: ModelFolder) -> None:
    before = weight_stamps(folder)
    reader = Reader(folder, lambda _path: None)
    calm = await started_of_same(reader.start, partial(file_stamps, folder, before))
    assert not calm.dead.is_set()
    tensors(lambda found: found["model.norm.weight"].add_(1))(folder.path)
    again = Reader(folder, lambda _path: None)
    with pytest.raises(EngineError, match=r"not started: files of the model below .* were changed"):
        await started_of_same(again.start, partial(file_stamps, folder, before))
    assert not hasattr(again, "read")


def parents_there_and_back(bent: Bent, during: Callable[[], Any]) -> Callable[[Path], Any]:
    """A folder above the model is another one for a moment, and bears no trace of it afterwards."""

    def meanwhile(path: Path) -> Any:
        above = path.parent
        above.rename(above.with_name("away"))
        shutil.copytree(above.with_name("away"), above)
        bent(path)
        try:
            return during()
        finally:
            shutil.rmtree(above)
            above.with_name("away").rename(above)

    return meanwhile


OTHER_NORM = tensors(lambda found: found["model.norm.weight"].add_(1))


async def test_an_engine_reads_the_files_that_were_checked_whatever_their_folders_are_called(
    folder: ModelFolder,
) -> None:
    """In the place of vLLM's processes: a reader of the path that they are given."""
    kept = held(folder)
    before, was = weight_stamps(kept), (folder.path / WEIGHTS).read_bytes()
    swapped = parents_there_and_back(OTHER_NORM, lambda: subprocess.check_output(["cat", kept.path / WEIGHTS]))
    read: list[bytes] = []
    reader = Reader(kept, lambda _path: read.append(swapped(folder.path)))
    assert not (await started_of_same(reader.start, partial(file_stamps, kept, before))).dead.is_set()
    assert read == [was]
    assert {one.name for one in kept.path.iterdir()} == set(wanted_files(folder.path))


def test_weights_are_hashed_in_the_files_that_are_served(folder: ModelFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The registered weights lie there while they are hashed, and others before and after."""
    descriptor, registered = describe(folder, 0), (folder.path / WEIGHTS).read_bytes()
    OTHER_NORM(folder.path)

    def good(path: Path) -> None:
        (path / WEIGHTS).write_bytes(registered)

    honest = loading.require_registered
    monkeypatch.setattr(loading, "require_registered", lambda *given: parents_there_and_back(
        good, lambda: honest(*given)
    )(folder.path))  # fmt: skip
    with pytest.raises(ModelError, match="is not the registered model: weights_root differs"):
        start(folder, descriptor)


async def test_the_torch_engine_reads_what_was_hashed(folder: ModelFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    descriptor, text = describe(folder, 0), [*range(20)]
    own = start(folder, descriptor)
    honest = loading.torch_engine
    monkeypatch.setattr(loading, "torch_engine", lambda *given, **named: parents_there_and_back(
        OTHER_NORM, lambda: honest(*given, **named)
    )(folder.path))  # fmt: skip
    other = start(folder, descriptor)
    rows = [(await engine.forward(KEY, engine.slice, 0, np.array(text))).rows for engine in (own, other)]
    assert np.array_equal(*rows)
    for engine in (own, other):
        await engine.close()


def test_files_are_let_go_with_the_folder_that_held_them(folder: ModelFolder) -> None:
    kept = held(folder)
    path, process = kept.path, psutil.Process()
    count = process.num_fds()
    assert path.is_dir()
    del kept
    assert not path.exists()
    assert process.num_fds() == count - 1 - len(wanted_files(folder.path))


def test_what_is_written_into_a_held_file_is_seen(folder: ModelFolder) -> None:
    shutil.copy(folder.path / WEIGHTS, folder.path / "own")  # the import may have linked it
    (folder.path / "own").rename(folder.path / WEIGHTS)
    kept = held(folder)
    before = weight_stamps(kept)
    with (folder.path / WEIGHTS).open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"!")
    with pytest.raises(ModelError, match=r"were changed: model\.safetensors"):
        file_stamps(kept, before)
