"""Tokenizers of a malicious publisher: refused, or told; none takes the machine's memory or ends the process."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from troth.client.errors import ModelUnavailable
from troth.client.language import Language, LanguageFiles

VOCABULARY = {"a": 0, "b": 1, "c": 2}
DOUBLED = [{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}] * 34
SQUARED = {"type": "Split", "pattern": {"Regex": "(a|a|aa)+$"}, "behavior": "Isolated", "invert": False}
TABLE = base64.b64encode(b"\xff\xff\xff\xff" + bytes(8)).decode()
SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}


def language(merges: tuple[str, ...] = (), **parts: Any) -> Language:
    model = {"type": "BPE", "vocab": VOCABULARY, "merges": list(merges)}
    text = json.dumps({"version": "1.0", "model": model, "added_tokens": [], **parts})
    return Language.load(LanguageFiles(text, "{{ messages[0].content }}", "{}"))


def used(made: Language) -> tuple[int, ...]:
    made.decode([0] * 15)
    return made.prompt_tokens([{"role": "user", "content": "a" * 40 + "b\u00e9"}])


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"normalizer": {"type": "Sequence", "normalizers": DOUBLED}}, "normalizer makes texts longer without end"),
        ({"decoder": {"type": "Sequence", "decoders": DOUBLED}}, "decoder makes texts longer without end"),
        ({"normalizer": {"type": "Prepend", "prepend": "a" * 2000}}, "longer without end"),
        ({"normalizer": {"type": "Replace", "pattern": {"String": ""}, "content": "x" * 300}}, "longer without end"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": TABLE}}, "not as large as it says"),
        ({"pre_tokenizer": SQUARED}, "tokenizer fails: Onig"),
        ({"pre_tokenizer": {"type": "FixedLength", "length": 0}}, "tokenizer fails"),
        ({"decoder": {"type": "Strip", "content": "a", "start": 10**9, "stop": 10**9}}, "tokenizer fails"),
        ({"merges": ("a b",)}, "tokenizer (fails|does not load)"),
    ],
)
def test_a_hostile_tokenizer_is_told_and_harms_nothing(parts: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelUnavailable, match=said):
        used(language(**parts))


def test_a_name_that_is_there_twice_hides_nothing() -> None:
    files = LanguageFiles('{"normalizer": null, "normalizer": {"type": "NFC"}}', "", "{}")
    with pytest.raises(ModelUnavailable, match="a name is there twice"):
        Language.load(files)


def test_what_real_tokenizers_replace_stays() -> None:
    """As models of SentencePiece have it."""
    before = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, SPACES]}
    assert used(language(normalizer=before))
