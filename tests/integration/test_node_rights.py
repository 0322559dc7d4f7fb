"""What a scheduler cannot do to a node: spoil its trace, change the text, have it work for nothing."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from support.node_network import (  # noqa: E402
    BLOCK_HASH,
    CLIENT,
    DOMAIN,
    ENDS,
    HEAD,
    LAYERS,
    NOW,
    PROMPT,
    SCHEDULER,
    VOCABULARY,
    VRF_SECRET,
    Network,
    announce,
    build,
    compare,
    countersigned,
    infer,
    put_on_chain,
    tiny_model,
    verify,
)

from troth.node.errors import AlreadySigned, BadInput, NotAssigned  # noqa: E402
from troth.node.metrics import Metrics  # noqa: E402
from troth.node.models.folder import ModelFolder  # noqa: E402
from troth.node.service.node_service import NodeService  # noqa: E402
from troth.protocol import typed_data, vrf  # noqa: E402
from troth.protocol.assignment import draw, sample_alpha  # noqa: E402
from troth.protocol.ends import pack_ends  # noqa: E402
from troth.protocol.identifiers import class_id, fee, task_id  # noqa: E402
from troth.protocol.task import Phase, Progress, Task, Terms  # noqa: E402
from troth.protocol.tensors import tokens_to_bytes  # noqa: E402
from troth.protocol.types import (  # noqa: E402
    Address,
)
from troth.protocol.wire import Commit, Forward, Open, Release  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    return tiny_model(tmp_path_factory.mktemp("models") / "tiny")


async def test_a_scheduler_cannot_have_a_committed_trace_replaced(folder: ModelFolder, tmp_path: Path) -> None:
    """The node would be slashed for not opening the one that is on chain."""
    network = build(folder, tmp_path)
    verifier = network.parties[0][2]
    result = await infer(network)
    start, rest = network.first_message(0, tokens_to_bytes(PROMPT), len(PROMPT)), tokens_to_bytes(result.tokens[:-1])
    await network.ask(verifier, *start)
    await network.ask(verifier, Forward(network.task, 0, 0, len(PROMPT), 11, "tokens", False), rest)
    await network.ask(verifier, Commit(network.task, 0, 0, 21))
    compared = [[await compare(network, result, 0, verifier)], []]
    for segment, other in ((0, 3), (0, 4), (1, 2), (1, 3), (1, 4)):
        compared[segment].append((await verify(network, result, segment, network.parties[segment][other]))[1])
    committed = network.benches[verifier].traces.find(network.task, 0, 0)
    await network.ask(verifier, Release(network.task))
    await network.ask(verifier, *start)
    with pytest.raises(AlreadySigned):
        await network.ask(verifier, Commit(network.task, 0, 0, len(PROMPT)))
    assert network.benches[verifier].traces.find(network.task, 0, 0) == committed
    task = put_on_chain(network, result, compared)
    proof = vrf.prove(VRF_SECRET, sample_alpha(DOMAIN, network.task, posts=task.progress.posts, block_hash=BLOCK_HASH))
    reply, _ = await network.ask(verifier, Open(network.task, 0, 0, proof))
    assert committed is not None
    assert reply.root == committed.root


async def test_a_verifier_cannot_be_given_another_last_token_afterwards(folder: ModelFolder, tmp_path: Path) -> None:
    """No row is computed from the last token, so only the text itself tells two of them apart."""
    network = build(folder, tmp_path)
    result = await infer(network)
    verifier, positions = network.parties[1][2], len(PROMPT) + len(result.tokens) - 1
    below = tokens_to_bytes((*PROMPT, *result.tokens[:-1])) + b"".join(result.rows[0])
    proof = {"upstream": result.last[0], "countersignature": countersigned(network, result.last[0])}
    forged = [*result.tokens[:-1], (result.tokens[-1] + 1) % VOCABULARY]
    await network.ask(verifier, *network.first_message(1, below, positions, **proof))
    await network.ask(verifier, Commit(network.task, 1, 0, positions, len(forged)), tokens_to_bytes(forged))
    await network.ask(verifier, Release(network.task))
    await network.ask(verifier, *network.first_message(1, below, positions, **proof))
    with pytest.raises(AlreadySigned):
        await network.ask(verifier, Commit(network.task, 1, 0, positions, len(forged)), tokens_to_bytes(result.tokens))


@pytest.mark.parametrize("told", ["while it streams", "at the end"])
async def test_an_answer_cannot_be_continued_from_another_text(folder: ModelFolder, tmp_path: Path, told: str) -> None:
    """Each token would follow from the rows, and the answer would still not be the model's."""
    network = build(folder, tmp_path)
    first, last = network.parties[0][0], network.parties[1][0]
    lower, data = await network.ask(first, *network.first_message(0, tokens_to_bytes(PROMPT), len(PROMPT)))
    proof = {"upstream": lower.row, "countersignature": countersigned(network, lower.row)}
    message = network.first_message(1, tokens_to_bytes(PROMPT) + data, len(PROMPT), emit=True, **proof)
    upper, _ = await network.ask(last, *message)
    other = tokens_to_bytes([(upper.token + 1) % VOCABULARY])
    lower, data = await network.ask(first, Forward(network.task, 0, 0, len(PROMPT), 1, "tokens", False), other)
    proof = {"upstream": lower.row, "countersignature": countersigned(network, lower.row)}
    if told == "while it streams":
        with pytest.raises(BadInput, match="chose"):
            await network.ask(last, Forward(network.task, 1, 0, len(PROMPT), 1, "rows", True, **proof), other + data)
        return
    verifier = network.parties[1][2]
    rows = (
        await network.ask(first, Forward(network.task, 0, 0, 0, len(PROMPT), "tokens", False), tokens_to_bytes(PROMPT))
    )[1]
    text = tokens_to_bytes(PROMPT) + other + rows + data
    await network.ask(verifier, *network.first_message(1, text, len(PROMPT) + 1, **proof))
    claimed = tokens_to_bytes([upper.token, 1])
    with pytest.raises(BadInput, match="not the one that was computed"):
        await network.ask(verifier, Commit(network.task, 1, 0, len(PROMPT) + 1, 2), claimed)


def another_order(network: Network, nonce: int) -> Network:
    """The same client's next order, to whichever nodes are drawn for it."""
    announcement = announce(network.view, network.announcement.request, nonce)
    parties = [draw(beta, network.view.nodes, network.view.execution.parties) for beta in announcement.betas]
    return dataclasses.replace(
        network, announcement=announcement, parties=parties, task=task_id(announcement.order, DOMAIN)
    )


def orders_of(network: Network, node: Address, count: int) -> list[Network]:
    """Orders in whose first segment `node` has a part."""
    found = (another_order(network, nonce) for nonce in range(2, 1000))
    return list(itertools.islice((order for order in found if node in order.parties[0]), count))


async def test_one_balance_does_not_pay_for_two_answers(folder: ModelFolder, tmp_path: Path) -> None:
    network = build(folder, tmp_path)
    network.view.balance = fee(network.view.execution, 2)
    node = network.parties[0][0]
    first, second = orders_of(network, node, 2)
    await network.ask(node, *first.first_message(0, tokens_to_bytes(PROMPT), len(PROMPT)))
    with pytest.raises(NotAssigned, match="2 tasks that are not on chain"):
        await network.ask(node, *second.first_message(0, tokens_to_bytes(PROMPT), len(PROMPT)))


async def test_a_task_that_is_not_opened_is_not_worked_on_for_long(folder: ModelFolder, tmp_path: Path) -> None:
    network = build(folder, tmp_path)
    node, now = network.parties[0][0], [NOW]
    bench = dataclasses.replace(network.benches[node], clock=lambda: now[0])
    network.services[node] = NodeService(bench, Metrics())
    await network.ask(node, *network.first_message(0, tokens_to_bytes(PROMPT), len(PROMPT)))
    now[0] += 121
    with pytest.raises(NotAssigned, match="not opened in time"):
        await network.ask(node, Forward(network.task, 0, 0, len(PROMPT), 1, "tokens", False), tokens_to_bytes([1]))


async def test_a_task_opened_with_another_split_is_not_worked_on(folder: ModelFolder, tmp_path: Path) -> None:
    network = build(folder, tmp_path)
    terms = Terms(
        typed_data.address_of(CLIENT), typed_data.address_of(SCHEDULER), class_id(network.view.execution),
        fee(network.view.execution, 1), HEAD - 1, pack_ends((LAYERS,)),
    )  # fmt: skip
    network.view.tasks[network.task] = Task(terms, Progress(Phase.OPENED, HEAD, 1, 2))
    with pytest.raises(NotAssigned, match="another split"):
        await network.ask(network.parties[0][0], *network.first_message(0, tokens_to_bytes(PROMPT), len(PROMPT)))


async def test_one_fee_does_not_pay_for_a_loop_of_sessions(folder: ModelFolder, tmp_path: Path) -> None:
    network = build(folder, tmp_path)
    node, message = network.parties[0][0], network.first_message(0, tokens_to_bytes(PROMPT), len(PROMPT))
    terms = Terms(
        typed_data.address_of(CLIENT), typed_data.address_of(SCHEDULER), class_id(network.view.execution),
        fee(network.view.execution, 2), HEAD - 1, pack_ends(ENDS),
    )  # fmt: skip
    network.view.tasks[network.task] = Task(terms, Progress(Phase.OPENED, HEAD, 2, 2))
    for _ in range(32):
        await network.ask(node, *message)
        await network.ask(node, Release(network.task))
    with pytest.raises(NotAssigned, match="too many sessions"):
        await network.ask(node, *message)


async def test_a_scheduler_that_never_opens_runs_out_of_credit(folder: ModelFolder, tmp_path: Path) -> None:
    network = build(folder, tmp_path)
    node = network.parties[0][0]
    *unopened, opened = orders_of(network, node, 11)
    for order in unopened[:-1]:
        await network.ask(node, *order.first_message(0, tokens_to_bytes(PROMPT), len(PROMPT)))
        await network.ask(node, Release(order.task))
    with pytest.raises(NotAssigned, match="too many tasks unopened"):
        await network.ask(node, *unopened[-1].first_message(0, tokens_to_bytes(PROMPT), len(PROMPT)))
    terms = Terms(
        typed_data.address_of(CLIENT), typed_data.address_of(SCHEDULER), class_id(network.view.execution),
        fee(network.view.execution, 2), HEAD - 1, pack_ends(ENDS),
    )  # fmt: skip
    network.view.tasks[opened.task] = Task(terms, Progress(Phase.OPENED, HEAD, 2, 2))
    await network.ask(node, *opened.first_message(0, tokens_to_bytes(PROMPT), len(PROMPT)))
