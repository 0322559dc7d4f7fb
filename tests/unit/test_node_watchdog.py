"""What a node posts by itself when its scheduler is late, and that it posts nothing while the scheduler is on time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from troth.chain.keystore import Key
from troth.node.disputes import FINAL_BLOCKS
from troth.node.margin_pool import MarginPool
from troth.node.metrics import Metrics
from troth.node.models.classes import default_class
from troth.node.service.bench import Bench
from troth.node.signing_record import SigningRecord
from troth.node.traces import StoredTrace, TraceStore
from troth.node.watchdog import Watchdog
from troth.overlay.operator import Operator
from troth.protocol import calls, typed_data, vrf
from troth.protocol.announcement import Announcement, announcement_to_wire
from troth.protocol.assignment import assignment_alpha
from troth.protocol.contract_types import Account, Parameters, Role
from troth.protocol.dtype import Dtype
from troth.protocol.ends import pack_ends
from troth.protocol.identifiers import class_id, model_id, verdict_commitment
from troth.protocol.sampling import tile_indices
from troth.protocol.state import ReviewRecord, TaskRecord
from troth.protocol.task import Phase, Progress, Task, Terms
from troth.protocol.trace import TileLayout, TileOpening, opening_root
from troth.protocol.typed_data import struct_hash
from troth.protocol.types import ZERO_HASH, Address, Hash32, ModelDescriptor, Order, Segment, TraceRoot

SECRETS = [bytes([index + 1]) * 32 for index in range(5)]
PARTIES = tuple(typed_data.address_of(secret) for secret in SECRETS)
DOMAIN = typed_data.Domain(31337, typed_data.address_of(b"\x77" * 32))
SCHEDULER, VRF_SECRET = typed_data.address_of(b"\x11" * 32), (99).to_bytes(32, "big")
MODEL = ModelDescriptor("llama/x", 4, 48, 64, 0, Hash32(b"w" * 32))
CLASS = default_class(model_id(MODEL), 0, "test", 10)
TASK_ID, SALT, REFERENCE = Hash32(b"t" * 32), Hash32(b"s" * 32), 10
ROWS = np.random.default_rng(5).standard_normal((20, 48)).astype(np.float32)
ROOT = Hash32(TileLayout(TASK_ID, CLASS.model, 20, 48, Dtype.FLOAT32).commit(ROWS).root)
OPENED, COMMIT_WINDOW, REVEAL_WINDOW = 100, 40, 20
TERMS = Terms(PARTIES[0], SCHEDULER, class_id(CLASS), 1000, REFERENCE, pack_ends((4,)))


@dataclass
class FakeView:
    """A chain at one block with at most one task."""

    live: Task | None = None
    head: int = OPENED + COMMIT_WINDOW
    over: int | None = None
    ended: TaskRecord | None = None
    reviews: dict[Hash32, ReviewRecord] = field(default_factory=dict)
    stake: int = 10**18
    domain: typed_data.Domain = DOMAIN
    parameters: Parameters = field(
        default_factory=lambda: Parameters(COMMIT_WINDOW, 20, REVEAL_WINDOW, 20, 600, 1, SCHEDULER)
    )

    def task(self, task_id: Hash32) -> Task | None:
        return self.live if self.over is None else None

    def ended_at(self, task_id: Hash32) -> int | None:
        return self.over

    def record(self, task_id: Hash32) -> TaskRecord | None:
        return self.ended

    def lost_dispute(self, operator: Address) -> int | None:
        return None

    def review(self, review: Hash32) -> ReviewRecord | None:
        return self.reviews.get(review)

    def account(self, operator: Address) -> Account:
        return Account(self.stake, 0, 0, Role.NODE)

    def execution_class(self, class_: Hash32) -> Any:
        return CLASS

    def vrf_key(self, scheduler: Address) -> tuple[int, int]:
        return vrf.public_key(VRF_SECRET)

    def members(self, class_: Hash32, segment: Segment, block: int) -> list[Address]:
        return list(PARTIES)

    async def until(self, condition: Callable[[], bool], timeout: float) -> bool:
        return condition()


@dataclass
class FakeReceipt:
    """A mined transaction."""

    block: int = OPENED + COMMIT_WINDOW


@dataclass
class FakeChain:
    """Remembers what was sent."""

    sent: list[calls.Call] = field(default_factory=list)

    async def execute(self, call: calls.Call, key: Key) -> FakeReceipt:
        self.sent.append(call)
        return FakeReceipt()


def announcement() -> bytes:
    alpha = assignment_alpha(DOMAIN, TASK_ID, 0, group_size=len(PARTIES), reference_block=REFERENCE)
    proof = vrf.prove(VRF_SECRET, alpha)
    order = Order(class_id(CLASS), SALT, SCHEDULER, 1000, 1, REFERENCE, 1, pack_ends((4,)))
    part, _ = announcement_to_wire(Announcement(order, bytes(65), (4,), (Hash32(bytes(32)),), (proof,)))
    return msgspec.json.encode(part)


JUDGED = struct_hash(TraceRoot(TASK_ID, 0, 0, 20, ROOT, ZERO_HASH))


def trace(party: int, verdict: int = 1) -> StoredTrace:
    me, inferred = PARTIES[party], party < CLASS.candidates
    commitment = verdict_commitment(TASK_ID, 0, me, root=ROOT, verdict=bool(verdict), salt=SALT)
    return StoredTrace(
        TASK_ID, 0, 0, int(inferred), 20, 48, 0, ROOT, ZERO_HASH if inferred else SALT, ZERO_HASH, verdict,
        b"" if inferred or verdict < 0 else commitment, b"" if inferred or verdict < 0 else JUDGED, announcement(), 1.0,
    )  # fmt: skip


def progress(phase: Phase, **fields: Any) -> Progress:
    return Progress(phase, OPENED, 1, CLASS.candidates, **fields)


class Scene:
    """A watchdog of one party over a fake chain."""

    def __init__(self, tmp_path: Path, party: int, stored: StoredTrace | None = None) -> None:
        self.view, self.chain, self.trace = FakeView(), FakeChain(), stored or trace(party)
        operator = Operator(SECRETS[party], DOMAIN)
        self.traces = TraceStore(tmp_path / "traces")
        self.traces.keep(self.trace, ROWS)
        bench = Bench(
            engine=None,  # type: ignore[arg-type] # nothing is computed here
            view=self.view,
            operator=operator,
            execution_class=class_id(CLASS),
            record=SigningRecord(tmp_path / "signed.sqlite"),
            traces=self.traces,
            margins=MarginPool(tmp_path / "margins.sqlite"),
        )
        self.watchdog = Watchdog(bench, self.chain, Key.from_secret(SECRETS[party]), Metrics())  # type: ignore[arg-type]

    async def sent(self, phase: Phase, **fields: Any) -> list[str]:
        self.view.live = Task(TERMS, progress(phase, **fields))
        await self.watchdog.step()
        return [call.function for call in self.chain.sent]


async def test_nothing_is_posted_in_the_first_half_of_a_window(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 0)
    scene.view.head = OPENED + COMMIT_WINDOW // 2
    assert await scene.sent(Phase.ASSIGNED, parties=PARTIES) == []
    scene.view.head = OPENED + REVEAL_WINDOW // 2
    posts = (ROOT, *(Hash32(bytes([n]) * 32) for n in range(3)))
    assert await scene.sent(Phase.SAMPLED, parties=PARTIES, posts=posts, seed=SALT, positions=20) == []


async def test_an_opened_task_is_assigned_with_the_schedulers_own_proofs(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 0)
    assert await scene.sent(Phase.OPENED) == ["assign"]
    (_, _, proofs) = calls.decode_call(scene.chain.sent[0].data).values
    alpha = assignment_alpha(DOMAIN, TASK_ID, 0, group_size=len(PARTIES), reference_block=REFERENCE)
    vrf.verify(vrf.public_key(VRF_SECRET), alpha, proofs[0][0])
    assert len(proofs[0][1]) >= 11


async def test_a_task_opened_with_another_split_is_left_alone(tmp_path: Path) -> None:
    """A scheduler chooses the split when it opens; a node that was told another one must not die of it."""
    scene = Scene(tmp_path, 0)
    terms = dataclasses.replace(TERMS, ends=pack_ends((2, 4)))
    scene.view.live = Task(terms, Progress(Phase.OPENED, OPENED, 2, CLASS.candidates))
    await scene.watchdog.step()
    assert scene.chain.sent == []


async def test_an_inferencer_posts_its_root_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 1)
    assert await scene.sent(Phase.ASSIGNED, parties=PARTIES) == ["commitInference"]
    task = Task(TERMS, progress(Phase.ASSIGNED, parties=PARTIES))
    assert scene.chain.sent[0] == calls.commit_inference(task, TraceRoot(TASK_ID, 0, 0, 20, ROOT, ZERO_HASH))
    posted = (ROOT, ZERO_HASH, ZERO_HASH, ZERO_HASH)
    assert await scene.sent(Phase.ASSIGNED, parties=PARTIES, posts=posted) == ["commitInference"]


@pytest.mark.parametrize(("verdict", "expected"), [(-1, []), (0, ["commitVerification"]), (1, ["commitVerification"])])
async def test_a_verifier_posts_what_it_decided(tmp_path: Path, verdict: int, expected: list[str]) -> None:
    scene = Scene(tmp_path, 3, trace(3, verdict))
    fields: dict[str, Any] = {"parties": PARTIES, "positions": 20}
    assert await scene.sent(Phase.ASSIGNED, posts=(ROOT, ZERO_HASH, ZERO_HASH, ZERO_HASH), **fields) == expected
    own = Hash32(scene.trace.commitment or b"x" * 32)
    assert await scene.sent(Phase.ASSIGNED, posts=(ROOT, ZERO_HASH, own, ZERO_HASH), **fields) == expected


@pytest.mark.parametrize(
    ("root", "attempt", "positions", "text"),
    [(ZERO_HASH, 0, 0, ZERO_HASH), (ROOT, 1, 20, ZERO_HASH), (ROOT, 0, 21, ZERO_HASH), (SALT, 0, 20, ZERO_HASH),
     (ROOT, 0, 20, SALT)],
    ids=["none", "attempt", "length", "another candidate's", "text"],
)  # fmt: skip
async def test_a_verifier_posts_for_no_root_but_the_one_it_judged(
    tmp_path: Path, root: Hash32, attempt: int, positions: int, text: Hash32
) -> None:
    scene = Scene(tmp_path, 3)
    posts = (root, ZERO_HASH, ZERO_HASH, ZERO_HASH)
    fields: dict[str, Any] = {
        "parties": PARTIES, "attempt": attempt, "positions": positions, "output_hash": text,
    }  # fmt: skip
    assert await scene.sent(Phase.ASSIGNED, posts=posts, **fields) == []


@pytest.mark.parametrize(("party", "filled", "expected"), [(0, 2, ["seal"]), (0, 1, []), (1, 2, [])])
async def test_only_the_inferencer_of_the_first_segment_seals_and_only_a_quorum(
    tmp_path: Path, party: int, filled: int, expected: list[str]
) -> None:
    scene = Scene(tmp_path, party)
    commitments = [Hash32(b"c" * 32)] * filled + [ZERO_HASH] * (3 - filled)
    assert await scene.sent(Phase.ASSIGNED, parties=PARTIES, posts=(ROOT, *commitments)) == expected


async def test_a_committed_tolerant_task_waits_for_its_sample(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 0)
    assert await scene.sent(Phase.COMMITTED, parties=PARTIES, posts=(ROOT, *[SALT] * 3), positions=20) == []


@pytest.mark.parametrize("party", [0, 3])
async def test_a_sampled_task_is_revealed_once(tmp_path: Path, party: int) -> None:
    scene = Scene(tmp_path, party)
    own = Hash32(scene.trace.commitment)
    posts = (ROOT, ZERO_HASH, own if party else SALT, SALT)
    place = 0 if party == 0 else 2
    fields: dict[str, Any] = {"parties": PARTIES, "posts": posts, "seed": SALT, "positions": 20}
    assert await scene.sent(Phase.SAMPLED, **fields) == ["reveal"]
    _, _, segment, index, opening = calls.decode_call(scene.chain.sent[0].data).values
    assert (segment, index) == (0, place)
    root, verdict, salt, tiles, siblings = opening
    indices = tile_indices(SALT, 0, CLASS.tiles, TileLayout(TASK_ID, CLASS.model, 20, 48, Dtype.FLOAT32).count)
    assert opening_root(20, 48, Dtype.FLOAT32, indices, TileOpening(tiles, tuple(siblings))) == root == ROOT
    assert verdict
    assert salt == scene.trace.salt
    revealed = tuple(SALT if slot == place else ZERO_HASH for slot in range(4))
    assert await scene.sent(Phase.SAMPLED, revealed=revealed, **fields) == ["reveal"]


async def test_another_attempts_trace_is_never_revealed(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 0, dataclasses.replace(trace(0), attempt=1))
    posts = (ROOT, ZERO_HASH, SALT, SALT)
    assert await scene.sent(Phase.SAMPLED, parties=PARTIES, posts=posts, seed=SALT, positions=20) == []


async def test_an_ended_task_frees_its_trace(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 0)
    scene.view.over = scene.view.head - FINAL_BLOCKS - scene.view.parameters.dispute_window
    assert await scene.sent(Phase.ASSIGNED, parties=PARTIES) == []
    assert list(scene.traces.all()) == [scene.trace], "a reorganisation may take the outcome back"
    scene.view.head += 1
    assert await scene.sent(Phase.ASSIGNED, parties=PARTIES) == []
    assert list(scene.traces.all()) == []
