"""A deployment whose prover is an Imprints, a class that names its head's imprints, and keys of the test set-up."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from support.tabs_stage import PARAMETERS, TabsStage, execution_class_of, following, tabs_stage
from support.wrong_token_scene import HEAD, WrongTokenScene, describe, named

from troth.cases.evidence import Evidence
from troth.chain.adapter import Chain
from troth.chain.deployment import submit
from troth.chain.keystore import Key
from troth.chain.market_follower import MarketFollower
from troth.chain.records import TransactionReceipt
from troth.node.court.accusing import AccusedText
from troth.node.court.imprinting import (
    UnprovenCase,
    WeighedToken,
    answer_imprints,
    build_case,
    find_weighed,
    prove,
)
from troth.node.engine.head import find_head
from troth.node.engine.imprints import head_imprints
from troth.node.models.folder import ModelFolder
from troth.protocol import typed_data, vrf
from troth.protocol.calls import Call
from troth.protocol.imprints import calls
from troth.protocol.imprints.calls import ImprintProof
from troth.protocol.imprints.keys import ProvingKey, read_key
from troth.protocol.imprints.naming import Imprints, with_imprints
from troth.protocol.imprints.rows import HeadTree, imprints_root
from troth.protocol.market.addresses import factory_code
from troth.protocol.market.messages import Signed, sign
from troth.protocol.types import Address

ROOT = Path(__file__).resolve().parent.parent.parent
CIRCUITS = ROOT / "circuits"
SNARKJS = CIRCUITS / "node_modules" / ".bin" / "snarkjs"
TEST_CHAIN = 31337


@lru_cache(maxsize=2)
def test_key(columns: int) -> ProvingKey:
    """A key of the test set-up, made once for these circuits; the test is skipped where its tools are not installed."""
    if not SNARKJS.exists():
        pytest.skip("circuits: `npm ci --prefix circuits` installs compiler and prover")
    sources = (CIRCUITS / "beaten.circom", CIRCUITS / "sizes" / f"beaten_{columns}.circom", CIRCUITS / "test_setup.mjs")
    named = hashlib.sha256(b"".join(one.read_bytes() for one in sources)).hexdigest()[:16]
    kept = ROOT / ".troth" / "circuits"
    kept.mkdir(parents=True, exist_ok=True)
    folder = kept / f"{columns}-{named}"
    with (kept / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "key.json").exists():
            made = kept / f"made-{os.getpid()}"
            command = ["node", str(CIRCUITS / "test_setup.mjs"), str(columns), str(made)]
            subprocess.run(command, check=True, capture_output=True, timeout=1_200)
            made.rename(folder)
    return read_key(folder, TEST_CHAIN)


test_key.__test__ = False  # type: ignore[attr-defined]


@dataclass
class ImprintScene:
    """``scene`` makes answers; ``contract`` is the prover."""

    scene: WrongTokenScene
    stage: TabsStage
    chain: Chain
    follower: MarketFollower
    key: ProvingKey
    head: HeadTree

    @property
    def contract(self) -> Address:
        """The Imprints."""
        return self.chain.contract

    def text(self, evidence: Evidence) -> AccusedText:
        """An answer as its accuser has it."""
        rows = evidence.rows[0].inside
        assert rows is not None
        stage = self.stage
        return AccusedText(evidence, stage.execution_class, stage.model, vrf.public_key(stage.vrf_secret), rows)

    def signed(self, text: AccusedText, **changes: Any) -> Signed[Imprints]:
        """What the node signs beside its result; ``changes`` replace fields."""
        message = Imprints(typed_data.struct_hash(text.signed.message), imprints_root(answer_imprints(text)))
        return sign(replace(message, **changes), text.evidence.domain, self.stage.nodes[0].secret)

    def weighed(self, text: AccusedText) -> WeighedToken:
        """What is beaten in an answer."""
        return find_weighed(text, find_head(self.scene.folder, HEAD))

    def case(self, text: AccusedText, recipient: Address) -> UnprovenCase:
        """What is to be proven."""
        place = (self.contract, recipient)
        return build_case(text, self.signed(text), self.weighed(text), self.head, place)

    async def prove(self, evidence: Evidence, recipient: Address) -> ImprintProof:
        """A proof that an answer is wrong."""
        return await prove(self.case(self.text(evidence), recipient), self.key, SNARKJS)

    async def convict(self, proof: ImprintProof, recipient: Address, sender: Key) -> TransactionReceipt:
        """Show it; ChainRejected where it convicts nobody."""
        return await self.send(calls.convict(calls.evidence_of(proof, recipient)), sender, self.contract)

    async def send(self, call: Call, sender: Key, to: Address) -> TransactionReceipt:
        """A transaction, whose block the follower has seen."""
        self.stage.anvil.fund(sender)
        receipt = await submit(self.stage.anvil.url, call, sender, to)
        await self.follower.catch_up()
        return receipt


@asynccontextmanager
async def imprint_scene(
    anvil: Any, folder: ModelFolder, key: ProvingKey, dtype: int = 0, **changes: Any
) -> AsyncIterator[ImprintScene]:
    """Deploy the factory, an Imprints with this key, and the market whose prover it is; ``changes`` of parameters."""
    anvil.mine(3)
    deployer, parameters = anvil.keys[0], replace(PARAMETERS, **changes)
    factory = await _created(anvil, Call("factory", factory_code()), deployer)
    creation = calls.imprints_creation(factory, parameters, [key.checking])
    prover = await _created(anvil, creation, deployer)
    head = HeadTree(head_imprints(find_head(folder, HEAD), dtype), key.levels)
    model = describe(folder, dtype)
    definition = named(execution_class_of(model, dtype=dtype, mantissa_bits=(10, 7)[dtype]))
    definition = replace(definition, name=with_imprints(definition.name, head.root))
    async with (
        tabs_stage(
            anvil, parameters=replace(parameters, prover=prover), model=model, execution_class=definition, nodes=2,
            tabs=False, factory=factory,
        ) as stage,
        following(stage) as follower,
        await Chain.connect(anvil.url, prover) as chain,
    ):  # fmt: skip
        yield ImprintScene(WrongTokenScene(stage, folder, follower.block - 1), stage, chain, follower, key, head)


async def _created(anvil: Any, call: Call, key: Key) -> Address:
    created = (await submit(anvil.url, call, key)).created
    assert created is not None
    return created
