"""A node's folder from which its operator disputes, and evidence over a tiny model's answers."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from numpy.typing import NDArray
from support.dispute_trials import Trial
from support.layer_disputes import SALT, SignedRows

from troth.cases import evidence as files
from troth.cases.errors import NothingToDo
from troth.cases.evidence import VERSION, Evidence, SegmentRows
from troth.chain.keystore import Key, create_account
from troth.node.configuration import NodeInitOptions, render
from troth.node.court.dispute_command import dispute_by
from troth.protocol.errors import TrothError
from troth.protocol.market import messages
from troth.protocol.market.messages import sign
from troth.protocol.market.signed import Result
from troth.protocol.request import Request, canonical_bytes, output_hash, request_hash, tokens_to_words
from troth.protocol.types import Hash32

TROTH = str(Path(sys.executable).parent / "troth")
SECONDS = 600
NOTHING = 4
"""The exit code where there is nothing to dispute."""
ANSWER = (7,)


@dataclass
class DisputingOperator:
    """``trial`` has the deployment and the model; ``key`` is the operator's."""

    trial: Trial
    home: Path
    key: Key

    @classmethod
    def make(cls, trial: Trial, home: Path, rpc: str = "") -> DisputingOperator:
        """Write the folder, as `troth node init` would."""
        stage = trial.stage.stage
        home.mkdir(mode=0o700)
        password = home / "password"
        password.write_text("correct horse\n")
        password.chmod(0o600)
        key = trial.stage.accuser
        create_account(home / "keys" / "operator.json", "correct horse", scrypt_n=1 << 12, key=key)
        place = stage.market.place
        options = NodeInitOptions(
            rpc=rpc or stage.anvil.url, factory=place.factory, bank=place.contracts.bank,
            execution_class="0x" + stage.class_id.hex(), model=str(trial.scene.folder.path), slice="0:2",
            segments=("0:2",), host="127.0.0.1", port=9443, endpoint="https://127.0.0.1:9443", device="cpu", threads=1,
            start_block=place.block,
        )  # fmt: skip
        (home / "node.toml").write_text(render(options))
        return cls(trial, home, key)

    def evidence(self, rows: NDArray[Any]) -> Evidence:
        """What a client hands over of an answer whose node signed these rows."""
        trial, stage = self.trial, self.trial.stage
        market, tokens = stage.stage, tuple(int(token) for token in trial.scene.tokens)
        domain = market.market.domain
        request = Request(market.class_id, tokens, len(ANSWER), 0, 1_000_000, ())
        stage.orders += 1
        order = stage.order((market.model.layers,), request_hash(request, SALT))
        digest = messages.order_id(order, domain)
        result = Result(
            order=digest, segment=0, input_head=order.request_hash,
            output_head=SignedRows(rows, trial.scene.tokens).head(digest), prompt=len(tokens), cached=0, written=1,
            trace_commitment=Hash32(b"\x05" * 32), output_hash=output_hash(SALT, ANSWER),
        )  # fmt: skip
        return Evidence(
            version=VERSION, chain_id=domain.chain_id, bank=domain.contract, tab=market.client_tab,
            order=sign(order, domain, market.tab_key.secret), nodes=(stage.node.address,),
            results=(sign(result, domain, stage.node.secret),), request=canonical_bytes(request),
            answer=tokens_to_words(ANSWER), salt=SALT, head_salt=SALT,
            rows=(SegmentRows.of(0, rows.astype("<f4").tobytes()),),
        )  # fmt: skip

    def write(self, evidence: Evidence, name: str = "case.troth") -> Path:
        """The file."""
        files.write(self.home / name, evidence)
        return self.home / name

    async def run(self, what: Path | str, *more: str) -> tuple[int, str, str]:
        """Exit code and what was said."""
        given = ["--home", str(self.home), "--json", "--password-file", str(self.home / "password")]
        process = await asyncio.create_subprocess_exec(
            TROTH, "node", "dispute", str(what), *given, *more,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(SECONDS):
            said, complained = await process.communicate()
        assert process.returncode is not None
        return process.returncode, said.decode(), complained.decode()

    async def told(self, what: Path | str, *, segment: int | None = None, position: int | None = None) -> str:
        """Within this process, where it disputes nothing, why: what the command prints, with the remedy."""
        password = self.home / "password"
        with pytest.raises(TrothError) as refused:
            await asyncio.to_thread(
                dispute_by, self.home, str(what), password, segment=segment, position=position, broadcast=True
            )
        code = NOTHING if isinstance(refused.value, NothingToDo) else 1
        assert refused.value.remedy
        return f"{code}: {refused.value}"
