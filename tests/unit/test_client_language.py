"""The tokenizer's side of a model: what does not hash to the chain's word is not used."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.byte_language import END, MODEL, architecture, language_files, tokenizer

from troth.client.errors import ModelUnavailable
from troth.client.language import Language, LanguageCache, LanguageFiles, check_files

FILES = language_files()


def test_the_registered_files_pass_and_any_other_does_not() -> None:
    check_files(FILES, MODEL.architecture)
    for changed in (
        replace(FILES, tokenizer=FILES.tokenizer + " "),
        replace(FILES, chat_template=FILES.chat_template.replace("user", "root") + "x"),
        replace(FILES, config=FILES.config.replace("512", "513")),
    ):
        with pytest.raises(ModelUnavailable, match="not the one registered"):
            check_files(changed, MODEL.architecture)


@pytest.mark.parametrize("name", ["", "toy", "toy//", "toy/0x/0x/0x", "a/b/c"])
def test_a_descriptor_that_names_no_hashes_passes_nothing(name: str) -> None:
    with pytest.raises(ModelUnavailable):
        check_files(FILES, name)


@pytest.mark.parametrize("body", [{}, [], None, {"tokenizer": "x", "chat_template": 1, "config": "{}"}])
def test_an_incomplete_answer_is_refused(body: object) -> None:
    with pytest.raises(ModelUnavailable, match="incomplete"):
        LanguageFiles.from_json(body)


def test_text_that_has_no_bytes_is_refused() -> None:
    with pytest.raises(ModelUnavailable, match="UTF-8"):
        LanguageFiles.from_json({"tokenizer": "\ud800", "chat_template": "", "config": "{}"})


def test_registered_files_that_do_not_parse_are_refused() -> None:
    for broken in (replace(FILES, tokenizer="{}"), replace(FILES, config="[]"), replace(FILES, config="{")):
        with pytest.raises(ModelUnavailable, match="does not load"):
            Language.load(broken)


def test_a_conversation_becomes_tokens_in_the_models_format_and_back() -> None:
    language = Language.load(FILES)
    ids = language.prompt_tokens([{"role": "user", "content": "é?"}])
    assert language.decode(list(ids)) == "user: é?\nassistant:"
    assert (language.end_tokens, language.context) == ((END,), 512)
    assert language.special_tokens == {"eos_token": "<|end|>"}


def test_several_end_tokens_are_all_taken() -> None:
    assert Language.load(language_files(eos_token_id=[END, 3])).end_tokens == (END, 3)


def test_a_tokenizers_own_truncation_does_not_cut_the_question() -> None:
    made = tokenizer()
    made.enable_truncation(4)
    made.enable_padding(length=64)
    files = replace(FILES, tokenizer=made.to_str())
    long = [{"role": "user", "content": "a" * 100}]
    assert len(Language.load(files).prompt_tokens(long)) == len(Language.load(FILES).prompt_tokens(long)) > 100


def test_the_cache_gives_back_what_was_put_in_and_nothing_that_was_altered(tmp_path: Path) -> None:
    cache = LanguageCache(tmp_path / "languages")
    assert cache.get(MODEL.architecture) is None
    cache.put(MODEL.architecture, FILES)
    assert cache.get(MODEL.architecture) == FILES
    assert cache.get(architecture(language_files(x=1))) is None
    (stored,) = (tmp_path / "languages").glob("*.json")
    body = json.loads(stored.read_text())
    stored.write_text(json.dumps(body | {"chat_template": "steal"}))
    assert cache.get(MODEL.architecture) is None
    for damage in ("{", "[]", "\x00"):
        stored.write_text(damage)
        assert cache.get(MODEL.architecture) is None
    stored.write_bytes(b"\xff")
    assert cache.get(MODEL.architecture) is None
