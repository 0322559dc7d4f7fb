"""A scheduler that draws, proves and opens as the rules say, and then does one thing that they forbid."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import JSONResponse, StreamingResponse
from support.client_network import WORDS
from support.scheduler_stage import ENDS, VRF_SECRET, Stage

from troth.protocol import vrf
from troth.protocol.assignment import assignment_alpha, draw
from troth.protocol.calls import open_task
from troth.protocol.fold import fold
from troth.protocol.identifiers import group_id, task_id
from troth.protocol.types import Hash32, segments_from_ends
from troth.scheduler.admission import SubmittedOrder
from troth.scheduler.served import Texts
from troth.scheduler.submission import read_submission

TOKEN = WORDS.index("word9")


@dataclass
class Fault:
    """What it does: names other parties, proves nothing, sends tokens unproven, skips one, or just falls silent."""

    kind: str
    opened: bytes = b""


def dishonest_scheduler(scene: Stage, texts: Texts, fault: Fault) -> FastAPI:
    """The application, to be served at the registered endpoint."""
    app = FastAPI()

    @app.get("/v1/info")
    async def info() -> JSONResponse:
        return JSONResponse({"classes": [{"id": "0x" + scene.class_id.hex(), "ends": list(ENDS)}]})

    @app.get("/v1/models/{_class}/tokenizer")
    async def tokenizer(_class: str) -> JSONResponse:
        template = texts.chat_template + (" " if fault.kind == "another template" else "")
        return JSONResponse({"tokenizer": texts.tokenizer, "chat_template": template, "config": texts.config})

    @app.get("/v1/tasks/{_task}")
    async def task(_task: str) -> JSONResponse:
        return JSONResponse({"tokens": [TOKEN, TOKEN], "finished": "length", "failure": None})

    @app.post("/v1/orders")
    async def orders(request: Request) -> StreamingResponse:
        submitted = read_submission(await request.body())
        return StreamingResponse(_lines(scene, submitted, fault), media_type="application/x-ndjson")

    return app


async def _lines(scene: Stage, submitted: SubmittedOrder, fault: Fault) -> AsyncIterator[bytes]:
    if fault.kind != "unproven tokens":
        yield _line("assigned", **await _assignment(scene, submitted, fault))
    receipt = await scene.chain.execute(open_task(submitted.order, submitted.signature), scene.scheduler)
    fault.opened = task_id(submitted.order, scene.chain.domain)
    yield _line("opened", tx="0x" + receipt.transaction.hex(), gas=receipt.gas_used)
    for position in (0, 2) if fault.kind == "a token skipped" else (0, 1):
        yield _line("token", id=TOKEN, position=position)


async def _assignment(scene: Stage, submitted: SubmittedOrder, fault: Fault) -> dict[str, Any]:
    order, domain = submitted.order, scene.chain.domain
    state = fold(await scene.chain.events(0, await scene.chain.block_number()))
    secret = vrf.generate_key() if fault.kind == "another key's proofs" else VRF_SECRET
    proofs, parties = [], []
    for number, segment in enumerate(segments_from_ends(ENDS, ENDS[-1])):
        members = state.groups[group_id(scene.class_id, segment)].members_at(order.reference_block)
        task = task_id(order, domain)
        alpha = assignment_alpha(domain, task, number, group_size=len(members), reference_block=order.reference_block)
        proofs.append(vrf.prove(secret, alpha))
        drawn = draw(Hash32(vrf.proof_to_hash(proofs[-1])), members, scene.execution_class.parties)
        parties.append(list(reversed(drawn)) if fault.kind == "other parties" else list(drawn))
    return {
        "task_id": "0x" + task.hex(),
        "ends": list(ENDS),
        "proofs": ["0x" + proof.hex() for proof in proofs],
        "parties": parties,
    }


def _line(kind: str, **fields: Any) -> bytes:
    return json.dumps({"type": kind, **fields}).encode() + b"\n"
