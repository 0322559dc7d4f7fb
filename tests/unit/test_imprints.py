"""Imprints: rounded rows, their hashes, when a token falls over them, and what the program refuses to prove with."""

from __future__ import annotations

import json
import sys
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.order_market import DOMAIN
from support.order_network import build

from troth.node.court.imprinting import UnprovenCase, prove
from troth.node.court.imprinting_command import hidden_proof
from troth.node.errors import ConfigError, ProofFailed
from troth.protocol import typed_data
from troth.protocol.errors import InvalidField, InvalidKey, InvalidNumbers
from troth.protocol.exact_numbers import NumberFormat, exact_logits, unit_bits
from troth.protocol.imprints.calls import ImprintKey
from troth.protocol.imprints.keys import ProvingKey, read_key
from troth.protocol.imprints.naming import MARK, Imprints, imprints_of, mark_of, with_imprints
from troth.protocol.imprints.poseidon import FIELD, poseidon
from troth.protocol.imprints.rows import (
    HeadTree,
    RowKind,
    imprints_leaf,
    imprints_path,
    imprints_root,
    round_row,
)
from troth.protocol.imprints.weighing import noise_lead, terms_of, weigh
from troth.protocol.market import canonical
from troth.protocol.market.heads import with_head
from troth.protocol.market.layers import with_layers
from troth.protocol.market.messages import Signed
from troth.protocol.market.token_proofs import lead_of
from troth.protocol.tensors import Dtype, rows_from_bytes, widen
from troth.protocol.types import Hash32
from troth.protocol.weight_rows import root_of_path
from troth.protocol.wire_market import Concluded

NAMED = with_head("toy", "lm_head.weight")


def test_the_hash_is_that_of_circomlib() -> None:
    assert poseidon([1, 2]) == 7853200120776062878684798364095072458815029376092732009249414926327459813530
    assert poseidon([1, 2, 3, 4, 5]) == 6183221330272524995739186171720101788151706631170188140075976616310159254464


@pytest.mark.parametrize(
    ("number", "kind", "expected"),
    [
        (0.0, RowKind.STATE, (0, 0)),
        (1e-45, RowKind.STATE, (0, 0)),
        (1.0, RowKind.STATE, (1 << 19, 25)),
        (np.nextafter(np.float32(1), np.float32(0)), RowKind.STATE, ((1 << 20) - 1, 24)),
        (2.0**39 - 2.0**15, RowKind.STATE, ((1 << 20) - 1, 63)),
        (2.0**20 - 0.0625, RowKind.WEIGHTS, ((1 << 20) - 1, 63)),
        (2.0**-44, RowKind.STATE, (1, 0)),
    ],
)
def test_a_row_is_rounded_towards_zero_under_the_least_scale(number: float, kind: RowKind, expected: Any) -> None:
    for sign in (1, -1):
        row = round_row(np.array([0.0, sign * number], np.float32), kind)
        assert (int(row.magnitudes[1]), row.scale) == expected
        assert int(row.negative[1]) == int(sign < 0)


@pytest.mark.parametrize(
    ("number", "kind"), [(2.0**39, RowKind.STATE), (2.0**20, RowKind.WEIGHTS), (np.inf, 44), (np.nan, 44)]
)
def test_what_is_too_large_or_no_number_has_no_imprint(number: float, kind: RowKind) -> None:
    with pytest.raises(InvalidNumbers):
        round_row(np.array([1.0, number], np.float32), RowKind(kind))


def test_each_number_scale_and_sign_changes_the_imprint() -> None:
    row = np.arange(1, 61, dtype=np.float32)
    first = round_row(row, RowKind.STATE).imprint()
    seen = {first, round_row(row * 2, RowKind.STATE).imprint(), round_row(row, RowKind.WEIGHTS).imprint()}
    for at in (0, 11, 12, 47, 48, 59):
        changed = row.copy()
        changed[at] = -changed[at]
        seen.add(round_row(changed, RowKind.STATE).imprint())
        changed[at] = 0
        seen.add(round_row(changed, RowKind.STATE).imprint())
    assert len(seen) == 15
    assert all(0 <= one < FIELD for one in seen)


def test_trees_open_each_row_and_no_other() -> None:
    imprints = [poseidon([at, at]) for at in range(5)]
    tree = HeadTree(imprints, levels=4)
    for place, leaf in enumerate(imprints):
        found, at = leaf, place
        for sibling in tree.path(place):
            found, at = poseidon([found, sibling] if at % 2 == 0 else [sibling, found]), at // 2
        assert found == tree.root
    assert HeadTree(imprints[:4], levels=4).root != tree.root
    with pytest.raises(InvalidNumbers):
        HeadTree(imprints, levels=2)
    root = imprints_root(imprints)
    path = imprints_path(imprints, 3)
    assert root_of_path(imprints_leaf(imprints[3]), 3, 5, path) == root
    assert root_of_path(imprints_leaf(imprints[2]), 3, 5, path) != root
    # A node of the tree is no leaf of it.
    assert len(imprints_leaf(imprints[0])) == 32


@pytest.mark.parametrize("rounded", [False, True])
def test_who_is_beaten_over_rounded_rows_is_beaten_exactly(rounded: bool) -> None:
    source, found = np.random.default_rng(3), 0
    for spread in (0.0, 3e-4, 6e-4, 1e-2, 1.0) * 40:
        state = (4 * source.standard_normal(512)).astype(np.float32)
        own = source.standard_normal(512).astype(np.float32) * np.float32(10.0 ** source.integers(-3, 2))
        rival = (own * np.float32(1 + spread * source.standard_normal())).astype(np.float32)
        if rounded:
            state, own, rival = (one.view(np.uint32) & 0xFFFF0000 for one in (state, own, rival))
            state, own, rival = (one.astype(np.uint32).view(np.float32) for one in (state, own, rival))
        rows = [round_row(state, RowKind.STATE), *(round_row(one, RowKind.WEIGHTS) for one in (own, rival))]
        lead = int(source.integers(-(1 << 62), 1 << 62)) if spread > 1e-2 else 0
        beaten = weigh(rows[0], rows[1], rows[2]).beaten(lead, rounded=rounded)
        weights = (own.tobytes(), rival.tobytes())
        unit = unit_bits(state.tobytes(), NumberFormat.FLOAT32, weights, NumberFormat.FLOAT32)
        exact = exact_logits(
            state.tobytes(), NumberFormat.FLOAT32, weights, NumberFormat.FLOAT32, rounded=rounded, unit=unit
        )
        likelier, slack = lead_of(exact, unit, rounded=rounded)
        ahead = likelier + (lead >> 64 - unit if unit < 64 else lead << unit - 64)
        assert not beaten or ahead > slack
        found += beaten
    assert found > 20


def test_a_lead_helps_no_rival_where_tokens_are_left_out() -> None:
    seed = Hash32(b"\x05" * 32)
    leads = [noise_lead(seed, 7, (1, rival), 800_000, cut=False) for rival in range(2, 30)]
    cut = [noise_lead(seed, 7, (1, rival), 800_000, cut=True) for rival in range(2, 30)]
    assert cut == [min(one, 0) for one in leads]
    assert max(leads) > 0 > min(leads)
    assert noise_lead(seed, 7, (1, 2), 0, cut=False) == 0
    largest = max(abs(noise_lead(seed, 7, (1, rival), (1 << 32) - 1, cut=False)) for rival in range(2, 30))
    assert largest < 1 << 83
    assert terms_of((3, 5), -1, rounded=True) == (((5 << 32 | 3) << 1 | 1) << 84) + (1 << 83) - 1


def test_a_class_names_one_root_and_its_head() -> None:
    name = with_imprints(with_layers(NAMED, Hash32(b"\x01" * 32)), 77)
    assert imprints_of(name) == 77
    assert name.startswith("toy" + MARK)
    assert name.endswith("/head:lm_head.weight")
    assert mark_of(name) == 3
    assert imprints_of(NAMED) is None
    twice = with_head(f"toy{MARK}{1:064x}", f"x{MARK}{2:064x}")
    short, headless, upper = f"toy{MARK}{1:063x}/head:h", f"toy{MARK}{1:064x}", f"toy{MARK}{'A' * 64}/head:h"
    large, trailing = f"toy{MARK}{FIELD:064x}/head:h", f"toy{MARK}{1:064x}f/head:h"
    for wrong in (twice, short, headless, upper, large, trailing):
        with pytest.raises(InvalidField):
            imprints_of(wrong)


# ------------------------------------------------------------------------------------------------------------ the node


async def test_a_node_signs_the_imprints_of_the_rows_that_chose_its_tokens_and_says_the_same_again(
    tmp_path: Path,
) -> None:
    network = build(tmp_path, name=with_imprints(NAMED, 77))
    ordered = await network.serve()
    signed = canonical.decode(Signed[Imprints], ordered.imprints, 1 << 10)
    result = ordered.results[0].message
    word = signed.require(DOMAIN, ordered.nodes[0])
    rows = rows_from_bytes(ordered.rows[0], ordered.positions, network.model.hidden_size, Dtype.FLOAT32)
    chosen = widen(rows[-result.written :], Dtype.FLOAT32)
    imprints = [round_row(row, RowKind.STATE).imprint() for row in chosen]
    assert word == Imprints(typed_data.struct_hash(result), imprints_root(imprints))
    header, again = await network.nodes[ordered.nodes[0]].ask(*network.conclude_message(ordered, 0))
    assert isinstance(header, Concluded)
    assert (header.imprints, again) == (ordered.imprints, canonical.encode(ordered.results[0]))


async def test_other_classes_sign_no_imprints(tmp_path: Path) -> None:
    assert not (await build(tmp_path).serve()).imprints


# ----------------------------------------------------------------------------------------------------------- proving


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    kept = tmp_path / "key"
    kept.mkdir()
    for name in ("proving.zkey", "beaten.wasm"):
        (kept / name).write_bytes(name.encode())
    told = {
        "test": True, "columns": 128, "levels": 7, "proving": sha256(b"proving.zkey").hexdigest(),
        "program": sha256(b"beaten.wasm").hexdigest(),
        "verification": {
            "vk_alpha_1": ["1", "2", "1"], "IC": [[str(at), str(at), "1"] for at in range(5)],
            **{f"vk_{one}_2": [["3", "4"], ["5", "6"], ["1", "0"]] for one in ("beta", "gamma", "delta")},
        },
    }  # fmt: skip
    (kept / "key.json").write_text(json.dumps(told))
    return kept


def test_a_key_is_read_whole_and_one_for_tests_on_test_chains_alone(folder: Path) -> None:
    key = read_key(folder, 31337)
    assert key.checking.columns == 128
    assert key.checking.words == (1, 2, *(4, 3, 6, 5) * 3, *(at for at in range(5) for _ in range(2)))
    for chain in (1, 10, 11155111):
        with pytest.raises(InvalidKey, match="anybody forges"):
            read_key(folder, chain)
    told = json.loads((folder / "key.json").read_text())
    (folder / "key.json").write_text(json.dumps({name: one for name, one in told.items() if name != "test"}))
    with pytest.raises(InvalidKey, match="anybody forges"):
        read_key(folder, 1)
    (folder / "key.json").write_text(json.dumps({**told, "test": False}))
    assert read_key(folder, 1).levels == 7
    (folder / "beaten.wasm").write_bytes(b"another")
    with pytest.raises(InvalidKey, match=r"beaten\.wasm is not"):
        read_key(folder, 1)
    (folder / "beaten.wasm").unlink()
    with pytest.raises(InvalidKey, match="no proving key"):
        read_key(folder, 1)


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!{sys.executable}\n{text}\n")
    path.chmod(0o755)
    return path


async def test_a_missing_failing_slow_or_false_prover_is_said(tmp_path: Path) -> None:
    key = ProvingKey(tmp_path, ImprintKey(8, ()), 7)
    proof: Any = SimpleNamespace()
    case = UnprovenCase({"state": "1", "head": "2", "terms": "3", "context": "4"}, proof)
    with pytest.raises(ProofFailed, match="cannot be started"):
        await prove(case, key, tmp_path / "nothing")
    failing = program(tmp_path / "failing", "import sys; print('Assert Failed'); sys.exit(1)")
    with pytest.raises(ProofFailed, match="Assert Failed"):
        await prove(case, key, failing)
    slow = program(tmp_path / "slow", "import time; time.sleep(60)")
    with pytest.raises(ProofFailed, match="no proof after"):
        await prove(case, key, slow, 0.5)
    false = program(tmp_path / "false", "import sys, json; json.dump(['1', '2', '3', '5'], open(sys.argv[7], 'w'))")
    with pytest.raises(ProofFailed, match="other inputs"):
        await prove(case, key, false)


def test_both_options_or_none(tmp_path: Path) -> None:
    assert hidden_proof(None, None, "snarkjs", 1) is None
    assert hidden_proof(tmp_path, tmp_path, "snarkjs", 1) is not None
    for one in ((tmp_path, None), (None, tmp_path)):
        with pytest.raises(ConfigError, match="needs --imprints and --key"):
            hidden_proof(*one, "snarkjs", 1)
