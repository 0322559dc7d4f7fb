"""Proofs of a wrong token against the real contracts: who is convicted, what it costs, and what convicts nobody."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.token_trials import Trial, token_trial
from support.wrong_token_scene import HEAD, Wording

from troth.audit.checks.faults import _weighed
from troth.audit.report import FindingKind
from troth.cases.calls import convict_by_proof
from troth.cases.courtroom import CallRefused, LiveCourtroom
from troth.cases.errors import NothingToDo
from troth.node.court import accusing
from troth.node.court.accusing import accuse
from troth.node.court.provable import BFLOAT16, NO_LAYERS
from troth.node.court.proving import Prover
from troth.node.engine.interface import Computed
from troth.node.errors import ProofTooDear
from troth.node.orders.session import JUDGED
from troth.node.orders.traces import StoredTrace, TraceStore
from troth.protocol import vrf
from troth.protocol.errors import ProtocolError
from troth.protocol.market import token_proofs
from troth.protocol.market.calls import build, read_call
from troth.protocol.market.errors import NotEvidence
from troth.protocol.market.events import FaultProven
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import Fault
from troth.protocol.market.token_proofs import TokenProof
from troth.protocol.market.types import PotKind
from troth.protocol.tokens import noise
from troth.protocol.types import Hash32

pytestmark = [pytest.mark.chain]

NO_CUT: dict[str, int] = {}


Trials = Callable[..., AbstractAsyncContextManager[Trial]]


@pytest.fixture
def trials(anvil: Any, tmp_path: Path) -> Trials:
    return partial(token_trial, anvil, tmp_path)


@pytest.mark.parametrize(("dtype", "disputes"), [(0, False), (1, False), (0, True)])
async def test_a_forged_token_convicts_alone_and_once(trials: Trials, dtype: int, disputes: bool) -> None:
    """Also where the deployment's prover is a Disputes, which passes such proofs on."""
    async with trials(dtype, disputes) as trial:
        stage = trial.scene.stage
        node, accuser = stage.nodes[0].address, trial.opener.courtroom.account
        stake = trial.pot(PotKind.STAKE, node)
        evidence = trial.scene.answer(Wording(forged=2, rank=9))
        proof = trial.accuse(evidence)
        assert proof.conviction.convict == node
        await trial.opener.convict(proof)
        await trial.follower.catch_up()
        penalty = stage.execution_class.penalty
        assert trial.pot(PotKind.STAKE, node) == stake - penalty
        assert penalty // 10 <= trial.pot(PotKind.CREDIT, accuser) < penalty // 2
        with pytest.raises(CallRefused, match="AlreadyProven"):
            await trial.opener.convict(proof)


async def test_a_copied_proof_convicts_the_same_node_once_and_pays_who_is_mined_first(
    trials: Trials, anvil: Any
) -> None:
    async with trials() as trial:
        stage, node = trial.scene.stage, trial.scene.stage.nodes[0].address
        copier = LiveCourtroom(stage.market, trial.follower, anvil.keys[7])
        call = trial.accuse(trial.scene.answer(Wording(forged=2, rank=9))).build(stage.market.contracts, b"")
        stake = trial.pot(PotKind.STAKE, node)
        await copier.send(call)
        await trial.follower.catch_up()
        assert trial.pot(PotKind.STAKE, node) == stake - stage.execution_class.penalty
        assert trial.pot(PotKind.CREDIT, copier.account) >= stage.execution_class.penalty // 10
        # Who was copied is told before it pays for a revert, and the proof is worth nothing a second time.
        for courtroom in (trial.opener.courtroom, copier):
            with pytest.raises(CallRefused, match="AlreadyProven"):
                await courtroom.send(call)
        assert trial.pot(PotKind.CREDIT, trial.opener.courtroom.account) == 0


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
async def test_numbers_that_are_no_state_convict_and_extremes_below_them_are_weighed(
    trials: Trials, value: float
) -> None:
    async with trials() as trial:
        states = np.ones((6, 128), np.float32)
        states[2, 5] = value
        assert trial.accuse(trial.scene.answer(Wording(), states)).conviction.convict
        # Zeros of both signs, subnormal numbers and one just below the limit: whoever chose well from them stands.
        states[2, :8] = [0.0, -0.0, 1e-45, -1e-45, 1e-38, -(2.0**39), 2.0**-126, 1.0]
        with pytest.raises(NothingToDo, match="No token"):
            trial.accuse(trial.scene.answer(Wording(), states))
        # And whoever did not falls, by whatever weight the large number has.
        proof = trial.accuse(trial.scene.answer(Wording(forged=2, rank=90), states))
        await trial.opener.convict(proof)


@pytest.mark.parametrize(
    "wording",
    [
        Wording(forged=5, rank=4),
        Wording(temperature=800_000, forged=0, rank=4),
        Wording(temperature=700_000, top_p=900_000, forged=3, rank=60, written=9),
        Wording(temperature=700_000, top_k=7, forged=3, rank=60, written=9),
        Wording(temperature=700_000, min_p=50_000, forged=3, rank=60, written=9),
        Wording(forged=1, rank=4, segments=(1, 2)),
        Wording(forged=0, rank=4, written=1),
    ],
    ids=["last", "noise", "nucleus", "top_k", "min_p", "pipeline", "one token"],
)
async def test_whatever_the_request_asked_for_the_last_segment_answers(trials: Trials, wording: Wording) -> None:
    async with trials() as trial:
        evidence = trial.scene.answer(wording)
        proof = trial.accuse(evidence)
        culprit = trial.scene.stage.nodes[len(wording.segments) - 1].address
        assert proof.conviction.convict == culprit
        stake = trial.pot(PotKind.STAKE, culprit)
        await trial.opener.convict(proof)
        await trial.follower.catch_up()
        assert trial.pot(PotKind.STAKE, culprit) < stake


@pytest.mark.parametrize("dtype", [0, 1])
async def test_honest_answers_convict_nobody_even_on_near_ties(trials: Trials, dtype: int) -> None:
    async with trials(dtype) as trial:
        for seed in range(4):
            for temperature, top_p in ((0, 1_000_000), (900_000, 1_000_000), (900_000, 950_000)):
                wording = Wording(temperature, top_p, written=12, seed=seed, scale=8.0)
                for cuts in (NO_CUT, {"top_k": 2}, {"min_p": 400_000}):
                    with pytest.raises(NothingToDo, match="No token") as refused:
                        trial.accuse(trial.scene.answer(replace(wording, **cuts)))
        # Whoever looks on is told what else arithmetic proves in this class, and what it does not.
        assert refused.value.remedy.startswith(BFLOAT16 if dtype else NO_LAYERS)
        # A state that draws two tokens level: machines may choose either of them.
        difference = trial.scene.weights[7] - trial.scene.weights[9]
        mean = trial.scene.weights[7] + trial.scene.weights[9]
        level = mean - difference * (mean @ difference) / (difference @ difference)
        for rank in (0, 1):
            evidence = trial.scene.answer(Wording(written=1, forged=0, rank=rank), level[None].astype(np.float32))
            with pytest.raises(NothingToDo, match="No token"):
                trial.accuse(evidence)


async def test_a_row_that_is_no_number_convicts(trials: Trials) -> None:
    async with trials() as trial:
        states = np.ones((6, 128), np.float32)
        states[3, 17] = np.nan
        proof = trial.accuse(trial.scene.answer(Wording(), states))
        await trial.opener.convict(proof)
        await trial.follower.catch_up()
        assert trial.follower.state.proven


async def test_a_class_that_names_no_head_and_requests_that_transform_are_left_to_the_court(trials: Trials) -> None:
    async with trials() as trial:
        text = trial.text(trial.scene.answer(Wording(forged=2, rank=9)))
        with pytest.raises(NothingToDo, match="names no head"):
            accuse(replace(text, definition=replace(text.definition, name="toy")), trial.scene.folder)
        with pytest.raises(NothingToDo, match="lacks"):
            accuse(replace(text, evidence=replace(text.evidence, salt=None)), trial.scene.folder)
        with pytest.raises(NothingToDo, match="not the rows"):
            accuse(replace(text, rows=text.rows[4:]), trial.scene.folder)


def _changes(proof: TokenProof) -> list[TokenProof]:
    """The proof with one thing changed: every number, hash and byte string in it, at every depth."""

    def changed(value: Any) -> list[Any]:
        if is_dataclass(value):
            return [
                replace(value, **{field.name: other})  # type: ignore[type-var]
                for field in fields(value)
                for other in changed(getattr(value, field.name))
            ]
        if isinstance(value, bool):
            return [not value]
        if isinstance(value, int):
            return [value ^ 1]
        if isinstance(value, bytes):
            return [bytes([value[0] ^ 1]) + value[1:], value[:-1] + bytes([value[-1] ^ 1])] if value else []
        if isinstance(value, tuple):
            return [
                (*value[:at], one, *value[at + 1 :])
                for at in (0, len(value) - 1)
                if value
                for one in changed(value[at])
            ]
        if isinstance(value, str) and not value.startswith("0x"):
            return [value + "x"]
        return []

    return changed(proof)


async def test_no_other_data_makes_a_proof_and_the_python_rules_say_the_same(
    trials: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[TokenProof] = []
    made = accusing.by_arithmetic
    monkeypatch.setattr(accusing, "by_arithmetic", lambda proof, *rest: kept.append(proof) or made(proof, *rest))
    async with trials() as trial:
        stage = trial.scene.stage
        trial.accuse(trial.scene.answer(Wording(temperature=800_000, forged=2, rank=30)))
        contracts, key = stage.market.contracts, vrf.public_key(stage.vrf_secret)

        async def said(proof: TokenProof) -> Any:
            call = convict_by_proof(contracts, token_proofs.encode(proof, contracts))
            return (await trial.opener.courtroom.simulate(call)).rejection

        (true,) = kept
        assert await said(true) is None
        judged, on_chain = [], []
        for other in _changes(true):
            try:
                found = token_proofs.judge(other, stage.market.domain, key)
                # Another signature is another party's, who is none of this deployment.
                judged += [other] if found.party == stage.nodes[0].address else []
            except ProtocolError:
                pass
            on_chain += [other] if await said(other) is None else []
        # The tab key's signature is not looked at: the node's over the result names the order.
        unsigned = replace(true.order, signature=b"")
        assert [replace(one.order, signature=b"") for one in on_chain] == [unsigned] * len(on_chain)
        # Nor does it matter in which unit sums are taken, as long as they fit.
        free = {"order": true.order, "unit_bits": true.unit_bits}
        assert [replace(one, **free) for one in on_chain] == [true] * len(on_chain)  # type: ignore[arg-type]
        # Hints are the contract's alone.
        free["draw"] = true.draw
        assert [one for one in judged if replace(one, **free) != true] == []  # type: ignore[arg-type]


async def test_evidence_whose_offsets_lead_elsewhere_convicts_nobody_and_no_one_twice(trials: Trials) -> None:
    """The contract reads a proof where it lies: what is there must have the hashes that were signed."""
    async with trials() as trial:
        contracts = trial.scene.stage.market.contracts
        call = trial.accuse(trial.scene.answer(Wording(forged=2, rank=9))).build(contracts, b"")
        data = read_call(Part.EVIDENCE, call.call.data).value("evidence")
        words = range(4, len(data) - 31, 32)
        offsets = [at for at in words if data[at : at + 24] == bytes(24) and int.from_bytes(data[at : at + 32]) >= 0x20]

        async def said(changed: bytes) -> Any:
            return (await trial.opener.courtroom.simulate(convict_by_proof(contracts, changed))).rejection

        def judged(changed: bytes) -> str | None:
            """Party, block and subject as the contract says them; None where it reverts."""
            asked = build(contracts, Part.PROOFS, "proven", changed)
            sent = {"to": asked.to, "data": "0x" + asked.call.data.hex()}
            try:
                return str(trial.scene.stage.anvil.rpc("eth_call", sent))
            except AssertionError:
                return None

        true = judged(data)
        assert true is not None
        reverted = 0
        for at in (4, *offsets[:24]):
            own = int.from_bytes(data[at : at + 32])
            for other in (own ^ 0x20, 0, len(data), 2**255, 2**256 - 0x20):
                found = judged(data[:at] + other.to_bytes(32, "big") + data[at + 32 :])
                # What is not read, as the tab key's signature, may lie anywhere: it is the same proof.
                assert found in {None, true}
                reverted += found is None
        assert reverted > 75
        # Another way to write the same offset is the same proof, once.
        same = data[:4] + (2**32 + 0x20).to_bytes(32, "big") + data[36:]
        assert await said(same) is None
        await trial.opener.courtroom.send(convict_by_proof(contracts, same))
        await trial.follower.catch_up()
        for one in (data, same):
            rejection = await said(one)
            assert rejection is not None
            assert rejection.name == "AlreadyProven"


async def test_an_honest_token_stands_before_the_contract_whatever_rival_is_named(
    trials: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[TokenProof] = []
    monkeypatch.setattr(accusing, "_beaten", lambda text, tensor: (2, rival))
    monkeypatch.setattr(token_proofs, "judge", lambda proof, *rest: kept.append(proof))
    async with trials() as trial:
        evidence = trial.scene.answer(Wording(temperature=800_000, top_p=900_000))
        for named_rival in (0, 5, 17, 95):
            rival = named_rival
            trial.accuse(evidence)
        monkeypatch.undo()
        contracts = trial.scene.stage.market.contracts
        for proof in kept:
            call = convict_by_proof(contracts, token_proofs.encode(proof, contracts))
            rejection = (await trial.opener.courtroom.simulate(call)).rejection
            assert rejection is not None
            assert rejection.name == "TokenStands"
            with pytest.raises(NotEvidence, match="stands"):
                token_proofs.judge(proof, trial.scene.stage.market.domain, vrf.public_key(trial.scene.stage.vrf_secret))
        assert Part.PROOFS.of(contracts)
        assert HEAD in trial.scene.stage.execution_class.name


async def test_a_row_that_only_pads_the_head_is_no_rival(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads have more rows than a vocabulary has tokens, and honest nodes never choose the rows beyond it."""
    kept: list[TokenProof] = []
    async with trials(padding=1) as trial:
        place, rival = 2, trial.scene.stage.model.vocabulary
        states = np.random.default_rng(8).standard_normal((6, 128)).astype(np.float32)
        states[place] = trial.scene.weights[rival]
        evidence = trial.scene.answer(Wording(forged=place, rank=1), states)
        monkeypatch.setattr(accusing, "_beaten", lambda text, tensor: (place, rival))
        monkeypatch.setattr(token_proofs, "judge", lambda proof, *rest: kept.append(proof))
        trial.accuse(evidence)
        monkeypatch.undo()
        (proof,) = kept
        contracts, key = trial.scene.stage.market.contracts, vrf.public_key(trial.scene.stage.vrf_secret)
        call = convict_by_proof(contracts, token_proofs.encode(proof, contracts))
        rejection = (await trial.opener.courtroom.simulate(call)).rejection
        assert rejection is not None
        assert rejection.name == "NoSuchToken"
        with pytest.raises(NotEvidence):
            token_proofs.judge(proof, trial.scene.stage.market.domain, key)


@pytest.mark.parametrize("cut", [{"top_k": 1}, {"min_p": 900_000}, {"top_k": 9, "min_p": 300_000}], ids=str)
async def test_a_rival_that_top_k_or_min_p_left_out_convicts_nobody(
    trials: Trials, monkeypatch: pytest.MonkeyPatch, cut: dict[str, int]
) -> None:
    """Its noise puts it ahead of the token by logits, and it was not left: the version alone tells the contract."""
    kept: list[TokenProof] = []
    async with trials() as trial:
        stage, evidence = trial.scene.stage, trial.scene.answer(Wording(temperature=2_000_000, scale=0.1, **cut))
        text = trial.text(evidence)
        with pytest.raises(NothingToDo, match="No token"):
            accuse(text, trial.scene.folder)
        logits = text.states @ trial.scene.weights.T
        first = len(text.request.prompt_tokens) - 1
        scores = logits + 2 * np.stack([noise(text.seed, first + row, logits.shape[1]) for row in range(len(logits))])
        leads = scores.max(axis=1) - scores[np.arange(len(scores)), list(text.tokens)]
        place = int(np.argmax(leads))
        assert leads[place] > 0.1
        beaten = (place, int(np.argmax(scores[place])))
        monkeypatch.setattr(accusing, "_beaten", lambda text, tensor: beaten)
        monkeypatch.setattr(token_proofs, "judge", lambda proof, *rest: kept.append(proof))
        accuse(text, trial.scene.folder)
        monkeypatch.undo()
        # With terms of version 1, under which nothing would be cut, it is another order's proof.
        told = replace(kept[0].request, head=b"\x01" + kept[0].request.head[1:])
        for proof, name in ((kept[0], "TokenStands"), (replace(kept[0], request=told), "Mismatch")):
            data = token_proofs.encode(proof, stage.market.contracts)
            call = convict_by_proof(stage.market.contracts, data)
            rejection = (await trial.opener.courtroom.simulate(call)).rejection
            assert rejection is not None
            assert rejection.name == name
            with pytest.raises(NotEvidence):
                token_proofs.judge(proof, stage.market.domain, vrf.public_key(stage.vrf_secret))


async def test_a_verifier_whose_verdict_lost_proves_it_by_what_it_kept(trials: Trials, tmp_path: Path) -> None:
    async with trials() as trial:
        evidence = trial.scene.answer(Wording(forged=2, rank=9))
        text = trial.text(evidence)
        traces, order = TraceStore(tmp_path / "traces"), evidence.order_id
        rows = np.frombuffer(text.rows, np.float32).reshape(-1, 128)
        kept = StoredTrace(order, 0, JUDGED, len(rows), 128, 0, bytes(32), bytes(32), traces.now())

        async def write(work: Callable[[], Any]) -> Any:
            return work()

        ground = SimpleNamespace(state=trial.follower.state)
        context: Any = SimpleNamespace(write=write, stores=SimpleNamespace(traces=traces), ground=ground, engine=None)
        prover = Prover(context, trial.opener, lambda: trial.scene.folder, 10**18)
        rejection: Any = SimpleNamespace(order=order, segment=0)
        assert not await prover.prove(rejection, evidence)
        traces.keep(kept, rows)
        # Where gas is dear it waits, and keeps the proof.
        prover.most_wei = 1
        with pytest.raises(ProofTooDear, match="accuse_wei"):
            await prover.prove(rejection, evidence)
        prover.most_wei, prover.model = 10**18, lambda: pytest.fail("the proof was made before")
        assert await prover.prove(rejection, evidence)
        prover.model = lambda: trial.scene.folder
        # Another verifier was first.
        assert not await prover.prove(rejection, evidence)
        # An honest answer that it rejected for something else.
        honest = trial.scene.answer(Wording())
        traces.keep(replace(kept, order_id=honest.order_id), np.frombuffer(trial.text(honest).rows, np.float32))
        assert not await prover.prove(SimpleNamespace(order=honest.order_id, segment=0), honest)  # type: ignore[arg-type]


async def test_where_only_hashes_travelled_a_verifier_proves_it_by_rows_of_its_own(
    trials: Trials, tmp_path: Path
) -> None:
    async with trials(exact=True, tiles=0) as trial:
        evidence = trial.scene.answer(Wording(forged=2, rank=9))
        true = np.frombuffer(trial.text(evidence).rows, np.float32).reshape(-1, 128)

        class Engine:
            rows = true

            async def forward(self, key: Any, span: Any, start: int, inputs: Any) -> Computed:
                return Computed(self.rows[start : start + len(inputs)], 0.0)

            async def forget(self, key: Any) -> None:
                pass

        async def write(work: Callable[[], Any]) -> Any:
            return work()

        stores = SimpleNamespace(traces=TraceStore(tmp_path / "traces"))
        engine, ground = Engine(), SimpleNamespace(state=trial.follower.state)
        context: Any = SimpleNamespace(write=write, stores=stores, ground=ground, engine=engine)
        prover = Prover(context, trial.opener, lambda: trial.scene.folder, 10**18)
        rejection: Any = SimpleNamespace(order=evidence.order_id, segment=0)
        told = replace(evidence, rows=())
        engine.rows = true + np.float32(1)
        assert not await prover.prove(rejection, told)
        engine.rows = true
        assert not await prover.prove(rejection, replace(told, answer=None))
        node = trial.scene.stage.nodes[0].address
        stake = trial.pot(PotKind.STAKE, node)
        assert await prover.prove(rejection, told)
        await trial.follower.catch_up()
        assert trial.pot(PotKind.STAKE, node) == stake - trial.scene.stage.execution_class.penalty


async def test_the_audit_weighs_a_proof_again(trials: Trials) -> None:
    async with trials() as trial:
        stage = trial.scene.stage
        call = trial.accuse(trial.scene.answer(Wording(forged=2, rank=9))).build(stage.market.contracts, b"")
        before = trial.follower.state
        subject: Any = SimpleNamespace(
            evidence=SimpleNamespace(parameters=before.deployed.parameters, domain=stage.market.domain)
        )
        read = read_call(Part.EVIDENCE, call.call.data)
        proof = token_proofs.decode(read.value("evidence"))
        found = token_proofs.judge(proof, stage.market.domain, vrf.public_key(stage.vrf_secret))
        meta = before.deployed.meta
        reporter = trial.opener.courtroom.account
        event = FaultProven(token_proofs.subject_of(found), found.party, reporter, Fault.BY_PROOF, 1, meta)
        assert list(_weighed(subject, event, read, before)) == []
        for wrong in (replace(event, convict=reporter), replace(event, subject=order_hash(1))):
            assert [one.kind for one in _weighed(subject, wrong, read, before)] == [FindingKind.MISMATCH]
        stands = replace(proof, rival=proof.token.token, better=proof.claimed)
        data = token_proofs.encode(stands, stage.market.contracts)
        other = read_call(Part.EVIDENCE, convict_by_proof(stage.market.contracts, data).call.data)
        assert [one.kind for one in _weighed(subject, event, other, before)] == [FindingKind.MISMATCH]


def order_hash(number: int) -> Hash32:
    return Hash32(number.to_bytes(32))
