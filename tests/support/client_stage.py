"""A client's session without sockets: a byte tokenizer, an offer with true proofs, a chain that a test moves on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from troth.chain.errors import ChainError, FollowTimeout
from troth.chain.keystore import Key
from troth.client.asking import Update, ask
from troth.client.choices import Choices
from troth.client.language import Language, LanguageFiles
from troth.client.market import Offer
from troth.client.ordering import SignedOrder, sign_order
from troth.client.receipts import Receipts
from troth.client.session import Session
from troth.protocol import vrf
from troth.protocol.assignment import assignment_alpha, draw
from troth.protocol.events import EscrowReleased, LogMeta
from troth.protocol.hashing import keccak256
from troth.protocol.identifiers import class_id, group_id, model_id
from troth.protocol.request import output_hash
from troth.protocol.settlement import Outcome
from troth.protocol.state import Group, Occupancy, Scheduler, State, TaskRecord
from troth.protocol.task import Phase, Progress, Task, Terms
from troth.protocol.typed_data import Domain
from troth.protocol.types import (
    ZERO_HASH,
    Address,
    ExecutionClass,
    Hash32,
    ModelDescriptor,
    Segment,
    address_from_bytes,
    pack_ends,
    segments_from_ends,
)

END = 256
VOCABULARY = 257
ENDS = (1, 2)
UNIT = 10**12
META = LogMeta(1, 0, ZERO_HASH, ZERO_HASH)
DOMAIN = Domain(31337, address_from_bytes(b"\xcc" * 20))
CLIENT = Key.from_secret(b"\x07" * 32)
VRF_SECRET = b"\x09" * 32
TRANSACTION = "0x" + "ab" * 32
FAILED_LINE = {"type": "failed", "code": "busy", "message": "no node", "charged": False, "retry_free": True}
TEMPLATE = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant:"


def tokenizer() -> Tokenizer:
    """A token per byte, and one that ends the answer."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    assert made.add_special_tokens(["<|end|>"]) == 1
    return made


def language_files(**config: Any) -> LanguageFiles:
    """What a scheduler serves for the byte tokenizer."""
    return LanguageFiles(
        tokenizer().to_str(),
        TEMPLATE,
        json.dumps({"eos_token_id": END, "max_position_embeddings": 512} | config),
    )


LANGUAGE = Language.load(language_files())


def tokens_of(text: str) -> list[int]:
    """Tokens of an answer, the end token included."""
    return [*LANGUAGE.tokenizer.encode(text, add_special_tokens=False).ids, END]


def member(number: int) -> Address:
    return address_from_bytes(bytes([number]) * 20)


def architecture(files: LanguageFiles) -> str:
    both = (files.tokenizer + files.chat_template).encode()
    return f"toy/0x{keccak256(files.config.encode()).hex()}/0x{keccak256(both).hex()}"


MODEL = ModelDescriptor(architecture(language_files()), 2, 16, VOCABULARY, 0, ZERO_HASH)
RULES = ExecutionClass(
    model_id(MODEL), "toy", 0, False, 10, 8, 9000, 1, 2, 3, 5, UNIT, 1000 * UNIT, 1000, 20000, ZERO_HASH
)
CLASS = class_id(RULES)
SCHEDULER = Scheduler(
    address_from_bytes(b"\xdd" * 20),
    CLIENT.address,
    CLIENT.address,
    vrf.public_key(VRF_SECRET),
    "https://127.0.0.1:1",
    ZERO_HASH,
    META,
)
OFFER = Offer(SCHEDULER, RULES, MODEL, ENDS)


def groups() -> dict[Hash32, Group]:
    made = {}
    for number, segment in enumerate(segments_from_ends(ENDS, MODEL.layers)):
        slots = tuple((Occupancy(member(16 * (number + 1) + slot), 0),) for slot in range(6))
        made[group_id(CLASS, segment)] = Group(CLASS, Segment(segment.first, segment.end), slots)
    return made


def base_state(escrow: int = 10**18) -> State:
    state = State()
    for identifier, group in groups().items():
        state = replace(state, groups=state.groups.with_item(identifier, group))
    return replace(
        state,
        models=state.models.with_item(RULES.model, MODEL),
        classes=state.classes.with_item(CLASS, RULES),
        schedulers=state.schedulers.with_item(SCHEDULER.operator, SCHEDULER),
        escrow=state.escrow.with_item(CLIENT.address, escrow),
    )


def signed_order(question: str = "hello", choices: Choices | None = None) -> SignedOrder:
    prompt = LANGUAGE.prompt_tokens([{"role": "user", "content": question}])
    return sign_order(OFFER, prompt, LANGUAGE.end_tokens, choices or Choices(64), CLIENT, DOMAIN, 77)


def drawn(signed: SignedOrder) -> tuple[list[bytes], list[list[str]]]:
    """Proofs and parties, as an honest scheduler computes them."""
    proofs, parties = [], []
    for number, group in enumerate(groups().values()):
        members = group.members_at(signed.order.reference_block)
        alpha = assignment_alpha(
            DOMAIN, signed.task_id, number, group_size=len(members), reference_block=signed.order.reference_block
        )
        proof = vrf.prove(VRF_SECRET, alpha)
        proofs.append(proof)
        parties.append([str(one) for one in draw(Hash32(vrf.proof_to_hash(proof)), members, RULES.parties)])
    return proofs, parties


def assigned_line(signed: SignedOrder) -> dict[str, Any]:
    proofs, parties = drawn(signed)
    return {
        "type": "assigned",
        "task_id": "0x" + signed.task_id.hex(),
        "ends": list(ENDS),
        "proofs": ["0x" + proof.hex() for proof in proofs],
        "parties": parties,
    }


def honest_lines(signed: SignedOrder, tokens: list[int]) -> list[dict[str, Any]]:
    """Everything up to the verdict."""
    hashed = "0x" + output_hash(signed.salt, tokens).hex()
    posted = {"tx": TRANSACTION, "gas": 100_000}
    return [
        assigned_line(signed),
        {"type": "opened", **posted},
        *({"type": "token", "id": token, "position": position} for position, token in enumerate(tokens)),
        {"type": "finished", "reason": "end" if tokens[-1] == END else "length", "output_hash": hashed},
        {"type": "committed", **posted},
        {"type": "settled", "outcome": "accepted", **posted},
        {"type": "receipt"},
    ]


def record(
    signed: SignedOrder,
    tokens: list[int] | None,
    outcome: Outcome | None = None,
    *,
    released: int | None = None,
    ends: tuple[int, ...] = ENDS,
) -> TaskRecord:
    """The chain's word on a task: committed if there are tokens, decided if there is an outcome."""
    terms = Terms(CLIENT.address, SCHEDULER.operator, CLASS, signed.fee, 77, pack_ends(ends))
    progress = Progress(Phase.OPENED, 78, len(ends), RULES.candidates)
    if tokens is not None:
        progress = replace(
            progress,
            phase=Phase.COMMITTED,
            positions=len(signed.request.prompt_tokens) + len(tokens) - 1,
            output_hash=output_hash(signed.salt, tokens),
        )
    back = signed.fee if released is None and outcome not in {None, Outcome.ACCEPTED} else released or 0
    events = (EscrowReleased(signed.task_id, CLIENT.address, back, back, META),) if back else ()
    return TaskRecord(Task(terms, progress), signed.order.request_hash, outcome, events)


class FakeFollower:
    """A chain view that a test moves on by hand; `failure` says that the node is away."""

    trouble = ""

    def __init__(self, state: State) -> None:
        self.state = state
        self.block = 78
        self.failure: ChainError | None = None

    def put(self, signed: SignedOrder, on_chain: TaskRecord) -> None:
        self.state = replace(self.state, tasks=self.state.tasks.with_item(signed.task_id, on_chain))

    async def catch_up(self) -> State:
        return self.state

    async def wait_until(self, condition: Callable[[State], bool], timeout: float) -> State:
        await asyncio.sleep(0)
        if not condition(self.state):
            raise FollowTimeout(f"not within {timeout:g} s", f"at block {self.block}", "")
        return self.state


class FakeApi:
    """A scheduler's stream, given as lines; an exception among them is raised in its place, None stalls for ever."""

    def __init__(self, lines: list[Any]) -> None:
        self.lines = lines
        self.closed = False

    async def order(self, body: dict[str, object]) -> AsyncGenerator[dict[str, Any], None]:
        json.dumps(body)
        try:
            for line in self.lines:
                if line is None:
                    await asyncio.Event().wait()
                if isinstance(line, Exception):
                    raise line
                yield line
        finally:
            self.closed = True


@dataclass
class ClientStage:
    """A session in pieces that a test can reach."""

    session: Session
    signed: SignedOrder
    follower: FakeFollower
    api: FakeApi
    receipts: Receipts
    updates: list[Update] = field(default_factory=list)

    async def ask(self) -> list[Update]:
        async for update in ask(self.session, self.signed):
            self.updates.append(update)
        return self.updates


def client_stage(
    folder: Path, lines: list[Any], signed: SignedOrder, on_chain: TaskRecord | None, mode: str = "scheduler"
) -> ClientStage:
    follower, api = FakeFollower(base_state()), FakeApi(lines)
    if on_chain is not None:
        follower.put(signed, on_chain)
    receipts = Receipts(folder / "receipts.sqlite3", DOMAIN)

    class Chain:
        domain = DOMAIN

    session = Session(Chain(), follower, api, OFFER, LANGUAGE, receipts, mode=mode)  # type: ignore[arg-type]
    return ClientStage(session, signed, follower, api, receipts)
