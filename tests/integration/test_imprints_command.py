"""`troth node accuse --imprints` as its operator runs it: a process, a file of evidence, a chain, and snarkjs."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.imprint_scene import SNARKJS, ImprintScene, imprint_scene, test_key
from support.wrong_token_scene import Wording, write_model

from troth.cases import evidence as files
from troth.cases.evidence import Evidence
from troth.chain.keystore import Key, create_account
from troth.node.configuration import NodeInitOptions, render
from troth.protocol.market import canonical
from troth.protocol.market.types import PotKind
from troth.protocol.types import Hash32

pytestmark = [pytest.mark.chain, pytest.mark.slow]

TROTH = str(Path(sys.executable).parent / "troth")
COLUMNS = 128
SECONDS = 300


@dataclass
class Accuser:
    """A node's folder, from which its operator accuses; ``scene`` has the answers."""

    scene: ImprintScene
    home: Path
    key: Key

    def write(self, evidence: Evidence, **changes: Any) -> Path:
        """The two files that `troth client case --write --rows` leaves; ``changes`` of what the node signed."""
        path = self.home / "case.troth"
        files.write(path, evidence)
        signed = self.scene.signed(self.scene.text(evidence), **changes)
        path.with_name("case.troth.imprints").write_bytes(canonical.encode(signed))
        return path

    async def run(self, path: Path, *more: str, key: Path | None = None) -> tuple[int, str, str]:
        """Exit code and what was said."""
        given = ["--imprints", f"{path}.imprints", "--key", str(key or self.scene.key.folder)]
        given += ["--snarkjs", str(SNARKJS), "--home", str(self.home), "--json"]
        given += ["--password-file", str(self.home / "password")]
        process = await asyncio.create_subprocess_exec(
            TROTH, "node", "accuse", str(path), *given, *more,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(SECONDS):
            said, complained = await process.communicate()
        assert process.returncode is not None
        return process.returncode, said.decode(), complained.decode()

    def pot(self, kind: PotKind, account: Any) -> int:
        return self.scene.follower.state.pot(kind, account)


@pytest.fixture
async def accuser(anvil: Any, tmp_path: Path) -> AsyncIterator[Accuser]:
    model, home = write_model(tmp_path / "model", columns=COLUMNS), tmp_path / "home"
    async with imprint_scene(anvil, model, test_key(COLUMNS)) as scene:
        home.mkdir(mode=0o700)
        password = home / "password"
        password.write_text("correct horse\n")
        password.chmod(0o600)
        key = anvil.keys[6]
        create_account(home / "keys" / "operator.json", "correct horse", scrypt_n=1 << 12, key=key)
        place = scene.stage.market.place
        options = NodeInitOptions(
            rpc=anvil.url, factory=place.factory, bank=place.contracts.bank,
            execution_class="0x" + scene.stage.class_id.hex(), model=str(model.path), slice="0:2", segments=("0:2",),
            host="127.0.0.1", port=9443, endpoint="https://127.0.0.1:9443", device="cpu", threads=1,
            start_block=place.block,
        )  # fmt: skip
        (home / "node.toml").write_text(render(options))
        yield Accuser(scene, home, key)


async def test_an_operator_convicts_by_two_files_and_shows_no_row(accuser: Accuser) -> None:
    scene, node = accuser.scene, accuser.scene.stage.nodes[0].address
    path = accuser.write(scene.scene.answer(Wording(800_000, forged=2, rank=9)))
    stake, penalty = accuser.pot(PotKind.STAKE, node), scene.stage.execution_class.penalty

    # Nothing is sent unless that is asked for.
    code, said, complained = await accuser.run(path)
    assert code == 0, complained
    told = json.loads(said)
    assert (told["convicts"], told["pays"], told["sent"]) == (node, accuser.key.address, False)
    assert told["would_fail"] is None
    await scene.follower.catch_up()
    assert accuser.pot(PotKind.STAKE, node) == stake

    code, said, complained = await accuser.run(path, "--broadcast")
    assert code == 0, complained
    assert json.loads(said)["sent"]
    await scene.follower.catch_up()
    assert accuser.pot(PotKind.STAKE, node) == stake - penalty
    assert accuser.pot(PotKind.CREDIT, accuser.key.address) >= penalty // 10

    # Once.
    code, said, complained = await accuser.run(path)
    assert code == 0, complained
    assert "AlreadyProven" in json.loads(said)["would_fail"]


async def test_an_operator_is_told_why_nobody_is_convicted(accuser: Accuser, tmp_path: Path) -> None:
    scene = accuser.scene
    honest = scene.scene.answer(Wording(800_000))
    code, _, complained = await accuser.run(accuser.write(honest))
    assert code == 4, complained
    forged = scene.scene.answer(Wording(forged=2, rank=9))
    # The node signed imprints of other rows: the row itself must be shown.
    code, _, complained = await accuser.run(accuser.write(forged, root=Hash32(b"\x07" * 32)))
    assert code == 4, complained
    assert "imprints" in complained
    # A key of another ceremony.
    other = tmp_path / "other-key"
    other.mkdir()
    for file in scene.key.folder.iterdir():
        (other / file.name).symlink_to(file)
    told = json.loads((other / "key.json").read_text())
    points = told["verification"]["IC"]
    points[1], points[2] = points[2], points[1]
    (other / "key.json").unlink()
    (other / "key.json").write_text(json.dumps(told))
    path = accuser.write(forged)
    code, _, complained = await accuser.run(path, key=other)
    assert code not in {0, 4}
    assert "under another key" in complained
    # Evidence without what was signed of imprints.
    path.with_name("case.troth.imprints").write_bytes(b"nothing")
    code, _, complained = await accuser.run(path)
    assert code not in {0, 4}
    assert "no signed word about imprints" in complained
