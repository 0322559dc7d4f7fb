"""What a node keeps for disputes: evidence of those that it opened, until they are over and not a moment longer."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from troth.cases import evidence as files
from troth.cases.errors import NothingToDo
from troth.cases.evidence import VERSION, Evidence, SegmentRows
from troth.node.court.accusation import DisputableSegment, _require_whole, require_class
from troth.node.court.accusations import RECENT, Accusations
from troth.node.court.canonical_traces import KeptTrace
from troth.node.court.disputing import first_other
from troth.node.court.provable import BFLOAT16, COURT, DISPUTE, NO_LAYERS, behind_tokens
from troth.node.court.segment_text import SegmentText
from troth.protocol.disputes.segment_trace import ComputedLayer
from troth.protocol.disputes.sums import packed
from troth.protocol.hashing import keccak256
from troth.protocol.market.layers import with_layers
from troth.protocol.market.rows import RowHashes
from troth.protocol.tensors import Dtype
from troth.protocol.types import ZERO_ADDRESS, Hash32

ORDER, OTHER = Hash32(keccak256(b"one")), Hash32(keccak256(b"other"))


def written(folder: Path, order: Hash32, *, old: bool) -> None:
    """Evidence with rows beside it, as ``keep`` leaves it."""
    rows = SegmentRows.of(0, order * (files.ROWS_INSIDE // 32 + 1))
    files.write(folder / f"{order.hex()}-0{files.SUFFIX}", Evidence(VERSION, 1, ZERO_ADDRESS, rows=(rows,)))
    past = time.time() - 2 * RECENT
    for path in folder.iterdir():
        if old and (order.hex() in path.name or path.name == f"{rows.digest.hex()}.rows"):
            os.utime(path, (past, past))


def test_evidence_of_a_dispute_that_is_over_goes_with_its_rows(tmp_path: Path) -> None:
    kept = Accusations(tmp_path)
    written(tmp_path, ORDER, old=True)
    written(tmp_path, OTHER, old=True)
    kept.drop_others({(ORDER, 0)})
    assert len(list(tmp_path.iterdir())) == 2
    assert (tmp_path / f"{ORDER.hex()}-0{files.SUFFIX}").is_file()
    kept.drop_others(set())
    assert list(tmp_path.iterdir()) == []


def test_evidence_that_is_about_to_be_used_stays(tmp_path: Path) -> None:
    written(tmp_path, ORDER, old=False)
    Accusations(tmp_path).drop_others(set())
    assert len(list(tmp_path.iterdir())) == 2


def test_a_layer_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    kept = KeptTrace(tmp_path / "trace")
    computed = ComputedLayer(np.arange(6, dtype=np.float32).reshape(2, 3), (ORDER, OTHER))
    kept.keep(4, computed)
    found = kept.kept(4)
    assert found is not None
    assert (found.output == computed.output).all()
    assert found.roots == computed.roots
    assert kept.kept(3) is None
    path = tmp_path / "trace" / "004.npz"
    path.write_bytes(path.read_bytes()[:-40])
    assert kept.kept(4) is None


def test_rows_are_shown_under_the_head_that_they_were_signed_with() -> None:
    rows = np.arange(24, dtype="<f4").reshape(3, 8)
    text = SegmentText(ORDER, 0, OTHER, (5, 6, 7), None, rows.tobytes(), 8)
    shown = text.shown(1)
    assert shown.read == 6
    assert shown.row == rows[1].tobytes()
    chain = RowHashes(ORDER, 0, 1, shown.previous)
    chain, _ = chain.extend_hashed([keccak256((6).to_bytes(4, "big") + shown.row), *shown.later])
    assert chain.position == 3
    later = SegmentText(ORDER, 1, OTHER, None, rows.tobytes(), rows.tobytes()[::-1], 8, bound=(5, 6, 7))
    assert later.head(entered=True) == text.head()
    assert later.entered(1) == shown
    with pytest.raises(NothingToDo):
        SegmentText(ORDER, 0, OTHER, (5, 6, 7), None, None, 8).shown(1)


def test_the_first_part_that_differs_is_shown_or_that_they_make_no_sum() -> None:
    own = (5, -7, 1 << 300)
    assert first_other(own, packed((5, -7, 1 << 300))) is None
    assert first_other(own, packed((5, -8, 1 << 299))) == 1
    for given in (b"", packed(own)[:-1], packed((*own, 0)), packed(own[:2])):
        assert first_other(own, given) is None


def test_a_class_whose_rows_are_not_provable_is_refused_in_words() -> None:
    name = with_layers("tiny/torch", ORDER)
    whole: Any = SimpleNamespace(dtype=int(Dtype.FLOAT32), name=name)
    require_class(whole)
    assert behind_tokens(whole) == DISPUTE
    for changes, words in (({"dtype": int(Dtype.BFLOAT16)}, BFLOAT16), ({"name": "tiny/torch"}, NO_LAYERS)):
        other: Any = SimpleNamespace(**vars(whole) | changes)
        with pytest.raises(NothingToDo) as refused:
            require_class(other)
        assert (refused.value.what, refused.value.remedy) == (words, COURT)
        # One sentence says what is proven, and what is not.
        assert "proves a wrong token (`troth node accuse`) and no wrong row" in behind_tokens(other)


@pytest.mark.parametrize(("exact", "segments", "refused"), [(True, 1, False), (False, 1, True), (True, 2, True)])
def test_rows_that_are_missing_are_disputed_only_where_none_travelled(
    exact: bool, segments: int, refused: bool
) -> None:
    """Else a verifier that lost its rows would accuse an honest node of a tolerant class, whose bits are its own."""
    result = SimpleNamespace(
        message=SimpleNamespace(prompt=2, cached=0, written=2, input_head=ORDER, output_head=ORDER)
    )
    evidence: Any = SimpleNamespace(results=(result,) * segments)
    definition: Any = SimpleNamespace(exact=exact)
    text = SegmentText(ORDER, 0, OTHER, (5, 6, 7), None, None, 8)
    descriptor: Any = None
    found = DisputableSegment(evidence, definition, descriptor, 0, text)
    if refused:
        with pytest.raises(NothingToDo, match="not at hand"):
            _require_whole(found)
    else:
        _require_whole(found)
