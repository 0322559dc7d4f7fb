"""A model that the disk does not take: how much room it needs is said, and nothing that looks like a model stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from troth.node.errors import ModelError
from troth.node.models.importing import save_tensors, staged

pytestmark = [pytest.mark.torch, pytest.mark.slow]


def test_who_has_no_room_is_told_how_much_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from safetensors import SafetensorError

    def full(*_: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(ModelError, match="No space left on device") as refused, staged(tmp_path / "mine") as staging:
        save_tensors({"one": torch.zeros(1000, 1000), "other": torch.zeros(500, 1000)}, staging)
    assert "Make room for 0.006 GB" in refused.value.remedy
    assert refused.value.value == str(tmp_path)
    assert list(tmp_path.iterdir()) == []
