"""A wrong token proven over a row that is not shown: gas, and what a proof takes, at 576 columns.

The key is that of the test set-up (circuits/test_setup.mjs), which is made where it is missing: a minute or two. The
head is made up and has 512 rows: neither gas nor the proof depends on how many there are.
"""

from __future__ import annotations

import json
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
from conftest import anvil_process
from support.imprint_scene import ImprintScene, imprint_scene, test_key
from support.wrong_token_scene import Wording, write_model

from benchmarks.figures import Figure
from troth.chain.keystore import Key
from troth.node.court.accusing import AccusedText
from troth.protocol.imprints import calls
from troth.protocol.imprints.rows import RowKind, round_row

COLUMNS, ROWS, WRITTEN = 576, 512, 16


async def hidden_figures() -> list[Figure]:
    """Gas of whole transactions, and seconds of a proof."""
    key = test_key(COLUMNS)
    told = json.loads((key.folder / "key.json").read_text("utf-8"))
    name = f"wrong token by its imprint, {COLUMNS} columns"
    figures = [Figure(f"{name}: constraints", told["constraints"], "constraints"), _imprint_figure()]
    with tempfile.TemporaryDirectory() as made, anvil_process() as anvil:
        folder = write_model(Path(made) / "model", ROWS, COLUMNS)
        async with imprint_scene(anvil, folder, key) as scene:
            accuser = anvil.keys[6]
            for what, wording in (
                ("the last of 16, greedy", Wording(forged=WRITTEN - 1, rank=9, written=WRITTEN)),
                ("the last of 16, noise", Wording(800_000, forged=WRITTEN - 1, rank=9, written=WRITTEN)),
            ):
                text = scene.text(scene.scene.answer(wording))
                figures += await _figures(scene, text, accuser, f"{name}: {what}")
    return figures


def _imprint_figure() -> Figure:
    row = np.random.default_rng(1).standard_normal(COLUMNS).astype(np.float32)
    rounded, began = round_row(row, RowKind.STATE), time.process_time()
    for _ in range(20):
        rounded.imprint()
    milliseconds = (time.process_time() - began) * 1e3 / 20
    return Figure(f"an imprint of {COLUMNS} columns", milliseconds, "ms", note="processor time, Python")


async def _figures(scene: ImprintScene, text: AccusedText, accuser: Key, name: str) -> list[Figure]:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    proof = await scene.prove(text.evidence, accuser.address)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    evidence = calls.evidence_of(proof, accuser.address)
    sent = {"from": accuser.address, "to": scene.contract, "data": "0x" + evidence.hex()}
    alone = int(scene.stage.anvil.rpc("eth_estimateGas", sent), 16)
    receipt = await scene.convict(proof, accuser.address, accuser)
    return [
        Figure(f"{name}: checked alone", alone, "gas", reach=250_000, note="a transaction that convicts nobody"),
        Figure(f"{name}: convicted", receipt.gas_used, "gas", note="with the movements of money"),
        Figure(f"{name}: proven", spent, "s", reach=5.0, note=f"processor time of snarkjs; {seconds:.1f} s passed"),
    ]
