"""Version 2 of the weights root: any bit of any file, quantised or not, changes it; old descriptors keep theirs."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from troth.node.errors import ModelError
from troth.node.models import tensor_files
from troth.node.models.broken_numbers import require_numbers
from troth.node.models.descriptor import cached_weights_root, describe
from troth.node.models.folder import ModelFolder, open_folder
from troth.node.models.roots import weight_hashing
from troth.node.models.roots.weights_root import weights_root
from troth.node.models.tensor_files import INDEX, RawTensor, raw_tensors, weight_files
from troth.protocol.architecture import weights_version, with_version, without_version
from troth.protocol.hashing import keccak256
from troth.protocol.weight_rows import ROW_TAG, TENSOR_TAG, WEIGHTS_TAG, model_hash, row_leaf, tensor_hash, tree_root

CONFIG = {"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 8, "vocab_size": 32}
Told = dict[str, tuple[str, list[int], bytes]]
HOLDS_A_PROGRAM = """
import sys
from troth.node.models.roots.weight_hashing import HashingProgram
program = HashingProgram()
print(program._process.pid, flush=True)
sys.stdin.read()
"""


def write(path: Path, tensors: Told, **header: Any) -> Path:
    """A safetensors file of (dtype, shape, bytes) by name; `header` replaces what would be said of a tensor."""
    told, start = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        told[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, start + len(data)]}
        start += len(data)
    raw = json.dumps({**told, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + b"".join(data for _, _, data in tensors.values()))
    return path


def noise(count: int, seed: int = 3) -> bytes:
    return np.random.default_rng(seed).bytes(count)


AWQ: Told = {
    "q.qweight": ("I32", [64, 16], noise(4096)), "q.qzeros": ("I32", [2, 16], noise(128)),
    "q.scales": ("F16", [2, 128], np.ones(256, np.float16).tobytes()),
}  # fmt: skip
FP8: Told = {
    "q.weight": ("F8_E4M3", [64, 64], noise(4096)), "q.weight_scale_inv": ("F32", [1, 1], np.float32(0.5).tobytes()),
    "q.input_scale": ("F32", [], np.float32(2).tobytes()),
}  # fmt: skip
MXFP4: Told = {
    "e.gate_up_proj_blocks": ("U8", [4, 8, 5, 16], noise(2560)),
    "e.gate_up_proj_scales": ("U8", [4, 8, 5], noise(160)),
    "e.packed": ("F4", [4, 64], noise(128)), "e.scales": ("F8_E8M0", [4, 2], noise(8)),
    "nothing": ("BF16", [0, 8], b""),
}  # fmt: skip
PLAIN: Told = {"w": ("BF16", [16, 300], noise(9600)), "norm": ("F32", [8], np.ones(8, np.float32).tobytes())}
CHECKPOINTS = {"AWQ": AWQ, "FP8": FP8, "MXFP4": MXFP4, "plain": PLAIN}


def root(folder: Path, quantisation: dict[str, Any] | None = None, programs: int = 2) -> bytes:
    return weights_root(raw_tensors(folder), quantisation, programs=programs)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_any_changed_word_changes_the_root(name: str, tmp_path: Path) -> None:
    tensors = CHECKPOINTS[name]
    path = write(tmp_path / "model.safetensors", tensors)
    before = root(tmp_path)
    assert root(tmp_path, programs=1) == before
    written = path.read_bytes()
    places = {len(written) - 1}
    for tensor in raw_tensors(tmp_path):
        inside = (0, tensor.length // 2, tensor.length - 1) if tensor.length else ()
        places |= {tensor.start + place for place in inside}
    for place in places:
        changed = bytearray(written)
        changed[place] ^= 1
        path.write_bytes(changed)
        assert root(tmp_path) != before, place


@pytest.mark.parametrize(
    "other",
    [
        {"w": ("F16", [16, 300], PLAIN["w"][2]), "norm": PLAIN["norm"]},
        {"w": ("BF16", [300, 16], PLAIN["w"][2]), "norm": PLAIN["norm"]},
        {"w": ("BF16", [1, 16, 300], PLAIN["w"][2]), "norm": PLAIN["norm"]},
        {"v": PLAIN["w"], "norm": PLAIN["norm"]},
        {**PLAIN, "nothing": ("F32", [0], b"")},
        {"w": PLAIN["w"]},
    ],
    ids=["dtype", "shape", "dimensions", "name", "one more", "one less"],
)
def test_dtype_shape_and_names_count(other: Told, tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", PLAIN)
    before = root(tmp_path)
    write(tmp_path / "model.safetensors", other)
    assert root(tmp_path) != before


def test_how_words_are_to_be_read_counts(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", AWQ)
    settings = {"quant_method": "awq", "bits": 4, "group_size": 128}
    roots = {root(tmp_path), root(tmp_path, settings), root(tmp_path, {**settings, "group_size": 64})}
    assert len(roots) == 3
    assert root(tmp_path, dict(reversed(settings.items()))) in roots


def test_a_scalar_is_the_documented_hash(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", {"s": ("F32", [], b"\0\0\x80?")})
    name = keccak256(b"s")
    leaf = keccak256(ROW_TAG + name + bytes(4) + b"\0\0\x80?")
    tensor = keccak256(TENSOR_TAG + name + keccak256(b"F32") + bytes(4) + (1).to_bytes(4, "big") + leaf)
    assert root(tmp_path) == keccak256(WEIGHTS_TAG + keccak256(b"") + (1).to_bytes(4, "big") + tensor)


@pytest.mark.parametrize(
    ("shape", "length", "rows"),
    [((100, 256), 51_200, 100), ((100, 255), 51_000, 1), ((4, 8, 90, 16), 46_080, 32), ((600,), 1200, 1),
     ((), 4, 1), ((0, 4), 0, 1), ((3, 5, 7), 105, 1), ((2, 1024), 1024, 2)],
)  # fmt: skip
def test_a_row_holds_enough_bytes_for_a_leaf(shape: tuple[int, ...], length: int, rows: int) -> None:
    assert RawTensor("t", "F4", shape, Path(), 0, length).rows == rows


def test_where_tensors_lie_does_not_count_and_progress_tells_all_bytes(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", {**AWQ, **PLAIN})
    seen: list[int] = []
    before = weights_root(raw_tensors(tmp_path), None, seen.append)
    assert sum(seen) == sum(len(data) for _, _, data in (*AWQ.values(), *PLAIN.values()))
    write(tmp_path / "model.safetensors", dict(reversed(AWQ.items())))
    write(tmp_path / "more.safetensors", PLAIN)
    assert root(tmp_path) == before


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 16, 17, 31, 65])
def test_parts_make_the_tree_of_all_rows(rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece is eight rows, as large a power of two as eleven hold."""
    data = noise(rows * 512)
    write(tmp_path / "model.safetensors", {"w": ("U8", [rows, 512], data)})
    expected = root(tmp_path)
    monkeypatch.setattr(tensor_files, "PIECE", 11 * 512)
    seen: list[int] = []
    assert weights_root(raw_tensors(tmp_path), None, seen.append) == expected
    sizes = [8] * (rows // 8) + [rows % 8] * (rows % 8 > 0)
    assert seen == [512 * size for size in sizes]
    leaves = [row_leaf("w", place, data[512 * place : 512 * place + 512]) for place in range(rows)]
    tree = tensor_hash("w", "U8", [rows, 512], rows, tree_root(leaves))
    assert expected == model_hash(keccak256(b""), 1, tree)


def large(path: Path, monkeypatch: pytest.MonkeyPatch, rows: int = 40) -> list[RawTensor]:
    """What is hashed by programs, in pieces of eight rows, blocks of three, and with a row longer than a block."""
    monkeypatch.setattr(weight_hashing, "SMALL", 0)
    monkeypatch.setattr(tensor_files, "PIECE", 8 * 512)
    monkeypatch.setattr(tensor_files, "BLOCK", 3 * 512)
    write(path / "model.safetensors", {"w": ("U8", [rows, 512], noise(rows * 512)), "v": ("U8", [4_000], noise(4_000))})
    return raw_tensors(path)


def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The programs that hash, as they start."""
    found: list[subprocess.Popen[bytes]] = []

    class NotedProgram(weight_hashing.HashingProgram):
        def __init__(self) -> None:
            super().__init__()
            found.append(self._process)

    monkeypatch.setattr(weight_hashing, "HashingProgram", NotedProgram)
    return found


def test_blocks_of_rows_and_programs_change_no_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(
        tmp_path / "model.safetensors", {"w": ("U8", [4096, 4096], noise(1 << 24)), "v": ("U8", [4_000], noise(4_000))}
    )
    tensors, seen = raw_tensors(tmp_path), list[int]()
    once = weights_root(tensors, None)
    monkeypatch.setattr(weight_hashing, "SMALL", 0)
    programs = started(monkeypatch)
    assert weights_root(tensors, None, seen.append, programs=2) == once
    assert seen == [4_000, *[tensor_files.PIECE] * 4]
    assert [program.returncode for program in programs] == [0, 0]
    assert weights_root(tensors, None, programs=1) == once
    assert len(programs) == 2, "one program would be no faster than none"
    monkeypatch.setattr(tensor_files, "BLOCK", 3 * 4096)
    assert weights_root(tensors, None, programs=1) == once


def test_a_program_that_is_killed_is_an_error_and_the_others_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors, programs = large(tmp_path, monkeypatch), started(monkeypatch)

    def kill(_size: int) -> None:
        for program in programs:
            program.kill()

    with pytest.raises(ModelError, match=r"was ended: exit status -9\. Free memory"):
        weights_root(tensors, None, kill, programs=2)
    assert [program.returncode for program in programs] == [-9, -9]


def test_a_program_that_died_before_it_was_asked_is_the_same_error(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", PLAIN)
    (tensor,) = [one for one in raw_tensors(tmp_path) if one.name == "w"]
    program = weight_hashing.HashingProgram()
    program._process.kill()
    program._process.wait()
    with pytest.raises(ModelError, match="was ended: exit status -9"):
        program.part_of(tensor, 0, tensor.rows)


def test_a_file_that_is_cut_while_programs_read_it_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors, programs = large(tmp_path, monkeypatch), started(monkeypatch)
    (tmp_path / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(ModelError, match=r"cut while it was read: model\.safetensors"):
        weights_root(tensors, None, programs=2)
    (tmp_path / "model.safetensors").unlink()
    for count in (1, 2):
        with pytest.raises(ModelError, match=r"cannot be read: .*\.safetensors: No such file.*import the model again"):
            weights_root(tensors, None, programs=count)
    assert [program.returncode for program in programs] == [0] * 4


def test_programs_end_with_whoever_does_not_want_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors, programs = large(tmp_path, monkeypatch), started(monkeypatch)
    with pytest.raises(ZeroDivisionError):
        weights_root(tensors, None, lambda _size: 1 // 0, programs=2)
    assert [program.returncode for program in programs] == [0, 0]


def test_programs_end_with_a_parent_that_is_killed() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", HOLDS_A_PROGRAM], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        assert child.is_running()
        parent.kill()
    child.wait(20)


def made_folder(path: Path, tensors: Told, **config: Any) -> ModelFolder:
    path.mkdir()
    write(path / "model.safetensors", tensors)
    (path / "config.json").write_text(json.dumps({**CONFIG, **config}))
    (path / "tokenizer.json").write_text("{}")
    return open_folder(path)


def test_a_descriptor_says_by_which_rules_its_root_is_made(tmp_path: Path) -> None:
    folder = made_folder(tmp_path / "plain", PLAIN)
    today, old = describe(folder, 1), describe(folder, 1, version=1)
    assert today.architecture == old.architecture + "/weights-2"
    assert (weights_version(today.architecture), weights_version(old.architecture)) == (2, 1)
    assert without_version(today.architecture) == old.architecture == with_version(old.architecture, 1)
    assert today.weights_root != old.weights_root
    assert describe(folder, 0).weights_root == today.weights_root, "it is of the files, whatever is computed with them"
    assert describe(folder, 0, version=1).weights_root != old.weights_root
    assert weights_version(old.architecture + "/weights-3") == 0
    with pytest.raises(ModelError, match="later Troth"):
        describe(folder, 1, version=0)


def test_quantised_weights_have_no_root_of_the_first_version(tmp_path: Path) -> None:
    folder = made_folder(tmp_path / "awq", AWQ, quantization_config={"quant_method": "awq"})
    assert describe(folder, 1).weights_root
    with pytest.raises(ModelError, match="says nothing of quantised weights"):
        describe(folder, 1, version=1)


def test_other_settings_of_the_quantisation_are_another_root_of_the_same_files(tmp_path: Path) -> None:
    folder = made_folder(tmp_path / "awq", AWQ, quantization_config={"bits": 4})
    before = describe(folder, 1).weights_root
    (folder.path / "config.json").write_text(json.dumps({**CONFIG, "quantization_config": {"bits": 8}}))
    assert describe(folder, 1).weights_root != before


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ({"w": {"dtype": "BF16", "shape": [16, 301], "data_offsets": [0, 9600]}}, "another size than its shape"),
        ({"w": {"dtype": "BF16", "shape": [16, 300], "data_offsets": [0, 9599]}}, "another size than its shape"),
        ({"w": {"dtype": "X", "shape": [1], "data_offsets": [1, 9600]}}, "overlap, or leave bytes out"),
        ({"w": {"dtype": "X", "shape": [1], "data_offsets": [0, 9601]}}, "overlap, or leave bytes out"),
        ({"x": {"dtype": "X", "shape": [1], "data_offsets": [9632, 9700]}}, "longer or shorter"),
        ({"w": {"dtype": "BF16", "shape": [-16, 300], "data_offsets": [0, 9600]}}, "describes no tensor"),
        ({"w": {"dtype": "BF16", "shape": [16, 300], "data_offsets": [9600, 0]}}, "describes no tensor"),
        ({"w": {"dtype": "BF16", "shape": [16, 300.0], "data_offsets": [0, 9600]}}, "describes no tensor"),
        ({"w": "BF16"}, "describes no tensor"),
    ],
    ids=str,
)
def test_a_header_that_contradicts_itself_is_refused(header: dict[str, Any], said: str, tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", PLAIN, **header)
    with pytest.raises(ModelError, match=said):
        raw_tensors(tmp_path)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not safetensors"),
        (struct.pack("<Q", 1 << 60) + b"{}", "not safetensors"),
        (struct.pack("<Q", 2) + b"[]", "not an object"),
        (struct.pack("<Q", 6) + b"{nope}", "cannot be read"),
        (struct.pack("<Q", 13) + b'{"a":1,"a":2}', "a name is there twice"),
        (struct.pack("<Q", 60_000) + b"[" * 60_000, "cannot be read"),
    ],
    ids=["empty", "long", "list", "no JSON", "doubled", "deep"],
)
def test_what_is_no_header_is_refused(data: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(ModelError, match=said):
        raw_tensors(tmp_path)


def shards(folder: Path, placed: dict[str, str]) -> None:
    write(folder / "model-1.safetensors", {"w": PLAIN["w"]})
    write(folder / "model-2.safetensors", {"norm": PLAIN["norm"]})
    (folder / INDEX).write_text(json.dumps({"weight_map": placed}))


RIGHT = {"w": "model-1.safetensors", "norm": "model-2.safetensors"}


@pytest.mark.parametrize(
    ("placed", "said"),
    [
        ({**RIGHT, "norm": "model-1.safetensors"}, "not what their index says"),
        ({**RIGHT, "head": "model-1.safetensors"}, "head: the index says model-1.safetensors, it is in None"),
        ({**RIGHT, "head": "model-3.safetensors"}, "missing: model-3"),
        ({"w": "../../other.safetensors"}, "outside of the folder"),
        ({"w": 1}, "outside of the folder"),
        ({}, "places no tensors"),
    ],
    ids=["elsewhere", "nowhere", "no file", "out of the folder", "no name", "nothing"],
)
def test_shards_that_contradict_their_index_are_refused(placed: Any, said: str, tmp_path: Path) -> None:
    shards(tmp_path, placed)
    with pytest.raises(ModelError, match=said):
        raw_tensors(tmp_path)


def test_a_second_copy_of_the_weights_is_left_out(tmp_path: Path) -> None:
    shards(tmp_path, RIGHT)
    before = root(tmp_path)
    write(tmp_path / "consolidated.safetensors", PLAIN)
    assert root(tmp_path) == before
    (tmp_path / INDEX).unlink()
    assert [path.name for path in weight_files(tmp_path)] == ["model-1.safetensors", "model-2.safetensors"]
    write(tmp_path / "model-3.safetensors", PLAIN)
    with pytest.raises(ModelError, match=r"there twice: w in model-1.safetensors and model-3.safetensors"):
        raw_tensors(tmp_path)


@pytest.mark.parametrize(
    ("dtype", "words"),
    [("F32", np.array([1, np.nan], "<f4")), ("F16", np.array([np.inf, 1], "<f2")), ("F64", np.array([-np.inf], "<f8")),
     ("BF16", np.array([0x3F80, 0x7FC0], "<u2")), ("F8_E4M3", np.array([0x7F], "u1"))],
)  # fmt: skip
def test_weights_that_are_no_numbers_are_refused(dtype: str, words: Any, tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", {**PLAIN, "z": (dtype, [len(words)], words.tobytes())})
    broken = [one for one in raw_tensors(tmp_path) if one.name == "z"]
    with pytest.raises(ModelError, match="NaN or infinity: z"):
        require_numbers(broken)
    sound = {"z": ("F32", [2], np.array([1e38, -0.0], "<f4").tobytes()), "i": ("I32", [1], b"\xff" * 4)}
    write(tmp_path / "model.safetensors", sound)
    require_numbers(raw_tensors(tmp_path))


def test_a_bar_moves_while_files_are_looked_at_for_changes(tmp_path: Path) -> None:
    """The first of two passes over the weights is as long as the second, and was silent."""
    path = tmp_path / "model"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(CONFIG))
    (path / "tokenizer.json").write_text("{}")
    size = write(path / "model.safetensors", AWQ).stat().st_size
    folder, told = open_folder(path), list[int]()
    weights = sum(one.length for one in raw_tensors(path))
    root = cached_weights_root(folder, 0, told.append)
    assert told[0] == size
    assert sum(told) == size + weights
    # Nothing is read that stands as it was, and the bar ends where it would have.
    again = list[int]()
    assert cached_weights_root(folder, 0, again.append) == root
    assert sum(again) >= size
    # A file that was only touched is read once.
    touched = list[int]()
    os.utime(path / "model.safetensors", (1, 1))
    assert cached_weights_root(folder, 0, touched.append) == root
    assert sum(touched) == size
