"""Checkpoints of a malicious publisher: refused in a sentence, before anything of them is run, fetched or built."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from support.tiny_llama import VOCABULARY, tiny_model  # noqa: E402
from tokenizers import Tokenizer, models  # noqa: E402
from transformers import PreTrainedTokenizerFast, dynamic_module_utils  # noqa: E402

from troth.node.engine.decoder import text_config  # noqa: E402
from troth.node.errors import ModelError  # noqa: E402
from troth.node.models.descriptor import describe  # noqa: E402
from troth.node.models.folder import ModelFolder, open_folder  # noqa: E402
from troth.node.models.importing import import_model  # noqa: E402
from troth.node.models.tensor_files import INDEX  # noqa: E402
from troth.protocol.architecture import language_hash  # noqa: E402
from troth.protocol.chat_templates import MORE_TEMPLATES  # noqa: E402
from troth.scheduler.errors import ConfigurationInvalid  # noqa: E402
from troth.scheduler.served import ModelTexts  # noqa: E402

pytestmark = pytest.mark.torch

WEIGHTS, CONFIG, TOKENIZER, NORM = "model.safetensors", "config.json", "tokenizer.json", "model.norm.weight"
Broken = Callable[[Path], Any]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tiny_model(tmp_path / "source").path
    (folder / TOKENIZER).write_text(json.dumps({"model": {"vocab": {str(one): one for one in range(VOCABULARY)}}}))
    return folder


def taken(source: Path, tmp_path: Path) -> ModelFolder:
    return import_model(str(source), tmp_path / "home", "tiny", lambda _line: None)


def config(**changed: Any) -> Broken:
    def broken(source: Path) -> None:
        told = json.loads((source / CONFIG).read_text())
        (source / CONFIG).write_text(json.dumps({**told, **changed}))

    return broken


def holding(name: str, data: bytes) -> Broken:
    return lambda source: (source / name).write_bytes(data)


def tensor(name: str, dtype: str, words: Any) -> Broken:
    """One more tensor, or one in the place of another."""

    def broken(source: Path) -> None:
        raw = (source / WEIGHTS).read_bytes()
        begin = 8 + int.from_bytes(raw[:8], "little")
        header, data, told = json.loads(raw[8:begin]), b"", {}
        kept = {key: (one["dtype"], one["shape"], raw[begin:][slice(*one["data_offsets"])])
                for key, one in header.items() if key != "__metadata__"}  # fmt: skip
        for key, (kind, shape, part) in {**kept, name: (dtype, [len(words)], words.tobytes())}.items():
            told[key] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
            data += part
        head = json.dumps(told).encode()
        (source / WEIGHTS).write_bytes(struct.pack("<Q", len(head)) + head + data)

    return broken


def pipe(name: str) -> Broken:
    def broken(source: Path) -> None:
        (source / name).unlink(missing_ok=True)
        os.mkfifo(source / name)

    return broken


def settings(**told: Any) -> Broken:
    return holding("tokenizer_config.json", json.dumps(told).encode())


def added(*tokens: Any) -> Broken:
    told = {"model": {"vocab": {"a": 1, "b": 2}}, "added_tokens": tokens}
    return holding(TOKENIZER, json.dumps(told).encode())


def more_templates(*names: str) -> Broken:
    def broken(source: Path) -> None:
        (source / MORE_TEMPLATES).mkdir()
        for name in names:
            (source / MORE_TEMPLATES / f"{name}.jinja").write_text(name)

    return broken


DEEP = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
ONES = np.ones(32)
HOSTILE: dict[str, tuple[Broken, str]] = {
    "NaN of FNUZ": (tensor("x", "F8_E4M3FNUZ", np.array([0x80], "u1")), "NaN or infinity: x"),
    "NaN of complex": (tensor("x", "C64", np.array([np.nan], "<c8")), "NaN or infinity: x"),
    "no float32": (tensor(NORM, "F64", ONES * 1e300), "NaN or infinity: model.norm"),
    "no bfloat16": (tensor(NORM, "F32", (ONES * 3.4e38).astype("<f4")), "NaN or infinity: model.norm"),
    "integers": (tensor(NORM, "I32", ONES.astype("<i4")), "says nothing of a quantisation.*norm.weight: I32"),
    "other dtype": (tensor("x", "Q4_K", ONES), "a dtype that safetensors has not: x: Q4_K"),
    "no UTF-8 name": (tensor("\ud800", "F32", ONES.astype("<f4")), "describes no tensor"),
    "terminal name": (tensor("\x1b[2J", "F32", ONES.astype("<f4")), r"describes no tensor: '\\x1b\[2J'"),
    "deep index": (holding(INDEX, DEEP), "index.json cannot be read"),
    "zero in index": (holding(INDEX, b'{"weight_map": {"a": "x\\u0000.safetensors"}}'), "outside of the folder"),
    "index twice": (holding(INDEX, b'{"weight_map": {}, "weight_map": {"a": "b"}}'), "name is there twice"),
    "deep": (holding(CONFIG, DEEP), "config.json cannot be read"),
    "no JSON": (holding(CONFIG, b"{"), "config.json cannot be read"),
    "no UTF-8": (holding(CONFIG, b"\xff"), "is not UTF-8"),
    "large": (holding(CONFIG, b" " * (5 << 20)), "larger than"),
    "twice": (holding(CONFIG, b'{"hidden_size": 1, "hidden_size": 2}'), "name is there twice"),
    "NaN": (config(rms_norm_eps=float("nan")), "config.json cannot be read"),
    "surrogate": (config(more="\ud800"), "config.json cannot be read"),
    "layers": (config(num_hidden_layers=20_000), "no num_hidden_layers, as decoders have: 20000"),
    "positions": (config(max_position_embeddings=-5), "is no number of positions: -5"),
    "heads": (config(num_attention_heads=0), "does not read config.json: ZeroDivisionError"),
    "words": (config(num_attention_heads="4"), "does not read config.json"),
    "windows": (config(layer_types=["sliding_attention"] * 2, sliding_window=4), "llama has not.*: layer_types: .'sl"),
    "scale": (config(logit_scale=0.5), "a setting that llama has not, and engines differ in .*: logit_scale: 0.5"),
    "both ways": (config(is_causal=False), "a setting that llama has not, .*: is_causal: False"),
    "norms": (config(qk_norm=True), "a setting that llama has not, .*: qk_norm: True"),
    "biases": (config(bias=True), "a setting that llama has not, .*: bias: True"),
    "thetas": (config(layer_rope_theta=[1, 2, 3, 4]), "a setting that llama has not, .*: layer_rope_theta"),
    "other class": (config(architectures=["OlmoForCausalLM"]), r"another architecture than .*llama: \['OlmoFor"),
    "classes": (config(architectures=["LlamaForCausalLM", "OlmoForCausalLM"]), "another architecture than that of its"),
    "classifier": (config(architectures=["LlamaForSequenceClassification"]), "another architecture than that of its"),
    "no class": (config(architectures=[]), "another architecture than that of its"),
    "class": (config(architectures="LlamaForCausalLM"), "another architecture than that of its"),
    "numbers of classes": (config(architectures=[1]), "another architecture than that of its"),
    "no keys": (config(num_key_value_heads=0), "does not build this decoder: llama: ZeroDivisionError"),
    "head size": (config(head_dim=1 << 36), "constant of the model would be enormous"),
    "rope": (config(rope_parameters={"rope_type": ["x"]}), "does not"),
    "padding": (config(pad_token_id=10**9), "does not build this decoder: llama: AssertionError"),
    "nested": (config(text_config={"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 32, "vocab_size": 48}),
               "has no part that writes text"),
    "settings": (config(quantization_config=[1]), "in another form, how weights are quantised"),
    "two settings": (config(quantization_config={"bits": 4}, compression_config={"bits": 8}), "says twice"),
    "pipe of weights": (pipe(WEIGHTS), "this is no file|missing"),
    "pipe beside weights": (pipe("z.safetensors"), "this is no file"),
    "pipe of a template": (pipe("chat_template.jinja"), "this is no file"),
    "ids": (holding(TOKENIZER, b'{"model": {"vocab": {"a": -5, "b": 2}}}'), "no number of one: -5"),
    "infinite id": (holding(TOKENIZER, b'{"model": {"vocab": {"a": Infinity}}}'), "tokenizer.json cannot be read"),
    "one id twice": (holding(TOKENIZER, b'{"model": {"vocab": {"a": 1, "c": 1}}}'), "two tokens one number: 1, 'a'"),
    "name twice": (holding(TOKENIZER, b'{"model": {"vocab": {"a": 1, "a": 2}}}'), "a name is there twice"),
    "added over another": (added({"id": 1, "content": "c"}), "has another token's number: 1, 'a', 'c'"),
    "added elsewhere": (added({"id": 3, "content": "b"}), "has another number in its vocabulary: 2, 'b', 3"),
    "added twice": (added({"id": 3, "content": "c"}, {"id": 3, "content": "d"}), "another token's number: 3, 'c', 'd'"),
    "added at two": (added({"id": 3, "content": "c"}, {"id": 4, "content": "c"}), "another number in its.*: 3, 'c', 4"),
    "no default": (settings(chat_template=[{"name": "rag", "template": "x"}]), r"text called default: \['rag'\]"),
    "two defaults": (settings(chat_template=[{"name": "default", "template": one} for one in "xy"]), "have one name"),
    "default of numbers": (settings(chat_template=[{"name": "default", "template": 5}]), "is a text called default"),
    "number": (settings(chat_template=5), "neither a text nor a list of named ones: int"),
    "default elsewhere": (more_templates("default", "rag"), "called default beside its own"),
    "others alone": (more_templates("rag"), r"templates is called default: \['rag'\]"),
    "template": (holding("chat_template.jinja", b"\xff"), "is not UTF-8"),
    "large template": (holding("chat_template.jinja", b"x" * (2 << 20)), "larger than"),
    "template's settings": (holding("tokenizer_config.json", b"[]"), "is not an object"),
    "template's letters": (holding("tokenizer_config.json", b'{"chat_template": "\\ud800"}'), "cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_checkpoint_is_refused_in_a_sentence(name: str, source: Path, tmp_path: Path) -> None:
    broken, said = HOSTILE[name]
    broken(source)
    with pytest.raises(ModelError, match=said) as caught:
        taken(source, tmp_path)
    assert len(str(caught.value)) < 1000
    assert not [*(tmp_path / "home" / "models").iterdir()]


def test_settings_that_change_nothing_are_taken(source: Path, tmp_path: Path) -> None:
    layers = ["full_attention"] * ModelFolder(source).layers
    config(layer_types=layers, logit_scale=1.0, is_causal=True, qk_norm=False, bias=None, layer_rope_theta=None)(source)
    config(architectures=["LlamaForCausalLM"])(source)
    assert taken(source, tmp_path).layers == len(layers)


def test_code_that_a_checkpoint_names_is_not_even_asked_about(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is asked may say yes; so nobody is."""

    def asked(*_: Any, **__: Any) -> None:
        raise AssertionError("transformers was about to fetch or run foreign code")

    monkeypatch.setattr(dynamic_module_utils, "get_class_in_module", asked)
    monkeypatch.setattr("builtins.input", asked)
    foreign = {"AutoConfig": "evil/code--made.Config", "AutoModelForCausalLM": "evil/code--made.Model"}
    config(auto_map=foreign)(source)
    assert taken(source, tmp_path).layers
    config(auto_map=foreign, model_type="evil")(source)
    with pytest.raises(ModelError, match="does not recognize this architecture"):
        import_model(str(source), tmp_path / "home", "evil", lambda _line: None)


def test_nothing_that_the_identifier_leaves_out_is_computed_with(source: Path) -> None:
    def read() -> dict[str, object]:
        return {name: value for name, value in text_config(open_folder(source)).to_dict().items() if name[:1] != "_"}

    before, architecture = read(), open_folder(source).architecture
    config(_experts_implementation="batched_mm", _attn_implementation="evil/kernel", _sliding_window=3)(source)
    folder = open_folder(source)
    found = text_config(folder)
    assert folder.architecture == architecture
    assert read() == before
    assert found._attn_implementation is None
    assert found._experts_implementation is None


def test_settings_of_a_quantisation_are_bound_wherever_an_engine_reads_them(source: Path) -> None:
    """vLLM asks for the outer ones first; a null below must not hide them from the root."""
    told = json.loads((source / CONFIG).read_text())
    nested = {"model_type": "mistral3", "text_config": {**told, "quantization_config": None}}
    roots = []
    for bits in (4, 8):
        (source / CONFIG).write_text(json.dumps({**nested, "quantization_config": {"bits": bits}}))
        roots.append(describe(open_folder(source), 1).weights_root)
    assert roots[0] != roots[1]
    (source / CONFIG).write_text(json.dumps(told))
    (source / "hf_quant_config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"beside config.json.*hf_quant_config.json"):
        open_folder(source)


def test_white_space_between_tokenizer_and_template_counts_where_it_is() -> None:
    """One text after the other, it would be the same model with another prompt."""
    texts = [
        (b"{}", b"x"),
        (b"{}\n", b"x"),
        (b"{}", b"\nx"),
        (b"{}", b""),
        (b"{}", b"\n"),
        (b"{}\n", b""),
        (b"{}\n", b"\n"),
    ]
    assert len({language_hash(*both) for both in texts}) == len(texts)


TEMPLATE = "{{ messages[0].content }}"
NAMED = [{"name": "rag", "template": "no"}, {"name": "default", "template": TEMPLATE}]


@pytest.mark.parametrize(
    "written",
    [
        holding("chat_template.jinja", TEMPLATE.encode()),
        settings(chat_template=TEMPLATE),
        settings(chat_template=NAMED),
        settings(chat_template={one["name"]: one["template"] for one in NAMED}),
        lambda source: (holding("chat_template.jinja", TEMPLATE.encode())(source), more_templates("rag")(source)),
    ],
    ids=["file", "setting", "list", "object", "among others"],
)
def test_everybody_takes_the_template_that_transformers_takes(written: Broken, source: Path, tmp_path: Path) -> None:
    written(source)
    folder = open_folder(source)
    assert folder.chat_template == TEMPLATE
    assert ModelTexts.load(source).architecture == folder.architecture
    # A class that reads nothing but the tokenizer's files.
    bare = source / "bare"
    bare.mkdir()
    for path in (*source.glob("*.jinja"), *source.glob("tokenizer_config.json")):
        shutil.copy(path, bare)
    if (source / MORE_TEMPLATES).exists():
        shutil.copytree(source / MORE_TEMPLATES, bare / MORE_TEMPLATES)
    Tokenizer(models.BPE(vocab={"a": 0}, merges=[])).save(str(bare / TOKENIZER))
    assert PreTrainedTokenizerFast.from_pretrained(bare).get_chat_template() == TEMPLATE
    shutil.rmtree(bare)
    assert taken(source, tmp_path).architecture == folder.architecture


def test_a_scheduler_refuses_templates_of_which_none_is_meant(source: Path) -> None:
    more_templates("rag")(source)
    with pytest.raises(ConfigurationInvalid, match="None of a model's chat templates is called default"):
        ModelTexts.load(source)


def test_a_snapshot_that_is_a_link_is_no_snapshot(source: Path, tmp_path: Path) -> None:
    repository = tmp_path / "models--org--tiny"
    (repository / "snapshots").mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    (repository / "snapshots" / "abc").symlink_to(source)
    with pytest.raises(ModelError, match="not one snapshot of this model: 0"):
        taken(repository, tmp_path)
