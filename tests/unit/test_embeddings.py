"""Embeddings: the last state of an order of one token, opened against what its node signed."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from fastapi.responses import JSONResponse
from support.byte_language import tokens_of
from support.toy_market import CLASS, COLUMNS, RULES
from support.toy_tab_gateway import TabGateway, tab_gateway

from troth.client.gateway import embeddings
from troth.client.gateway.embeddings import MOST_INPUTS
from troth.client.gateway.guard import SpendingLimits
from troth.client.orders.journal import RUNNING, Phase
from troth.protocol.errors import InvalidRows, WireError
from troth.protocol.market import checks
from troth.protocol.market.last_row import LastRow, require_last_row, row_tolerance
from troth.protocol.market.rows import RowHashes
from troth.protocol.market.signed import Opinion, Result
from troth.protocol.types import ZERO_HASH, Hash32

if TYPE_CHECKING:
    from openai import AsyncOpenAI

ORDER, SALT = Hash32(b"\x07" * 32), Hash32(b"\x08" * 32)
PROMPT, ANSWER = (3, 1, 4, 1, 5), (9, 2)


def signed(segment: int, states: Any) -> tuple[Result, LastRow]:
    """What a node signs of a segment, and its last row."""
    bound = None if segment else [*PROMPT, *ANSWER[:-1]]
    chain, last = RowHashes(ORDER, segment).extend(states.tobytes(), 4 * COLUMNS, bound)
    head = checks.head(ORDER, SALT, chain.link)
    result = Result(ORDER, segment, ZERO_HASH, head, 3, 2, len(ANSWER), ZERO_HASH, ZERO_HASH)
    return result, LastRow(states[-1].tobytes(), last.previous, SALT)


def rows() -> Any:
    return np.random.default_rng(3).normal(size=(6, COLUMNS)).astype(np.float32)


@pytest.mark.parametrize("segment", [0, 1])
def test_the_last_row_opens_and_no_other(segment: int) -> None:
    states = rows()
    result, shown = signed(segment, states)
    assert np.array_equal(require_last_row(shown, result, RULES, PROMPT, ANSWER), states[-1])
    bent = states[-1].copy()
    bent[0] = np.nextafter(bent[0], np.float32(np.inf))
    others = (
        replace(shown, row=bent.tobytes()),
        replace(shown, row=states[-2].tobytes()),
        replace(shown, previous=ZERO_HASH),
        replace(shown, head_salt=ORDER),
    )
    for other in others:
        with pytest.raises(InvalidRows, match="not the last row"):
            require_last_row(other, result, RULES, PROMPT, ANSWER)
    for size in (0, 4 * COLUMNS - 4, 4 * COLUMNS + 4):
        with pytest.raises(WireError):
            require_last_row(replace(shown, row=bytes(size)), result, RULES, PROMPT, ANSWER)
    with pytest.raises(WireError):
        require_last_row(replace(shown, row=b"\xff" * 4 * COLUMNS), result, RULES, PROMPT, ANSWER)


def test_the_first_segment_s_row_stands_for_its_token_and_its_place() -> None:
    result, shown = signed(0, rows())
    with pytest.raises(InvalidRows):
        require_last_row(shown, result, RULES, PROMPT, (8, 2))
    with pytest.raises(InvalidRows):
        require_last_row(shown, replace(result, cached=3), RULES, (*PROMPT, 9), ANSWER)


def test_only_a_check_that_holds_one_row_stands_for_an_embedding() -> None:
    assert row_tolerance(replace(CLASS, exact=True)) == 0
    assert row_tolerance(replace(CLASS, state_cut=25)) == pytest.approx(0.0005)
    assert row_tolerance(replace(CLASS, dtype=1)) == np.inf
    assert row_tolerance(replace(CLASS, dtype=1, exact=True)) == 0


# -------------------------------------------------------------------------------------------------------- the gateway


def openai(stage: TabGateway) -> AsyncOpenAI:
    from openai import AsyncOpenAI

    return AsyncOpenAI(base_url=stage.gateway.base_url, api_key=stage.gateway.access.key, max_retries=0)


async def ask(stage: TabGateway, **fields: Any) -> Any:
    async with stage.client as client:
        return await client.post("/v1/embeddings", json={"model": "toy-float32", "input": "hello"} | fields)


@pytest.mark.slow
@pytest.mark.slow
async def test_openai_reads_the_signed_state_scaled_to_one(tmp_path: Path) -> None:
    async with tab_gateway(tmp_path) as stage, openai(stage) as client:
        made = await client.embeddings.create(model="toy-float32", input=["hello", "good day"])
        assert [one.index for one in made.data] == [0, 1]
        entries = sorted(stage.stage.session.journal.all(), key=lambda entry: entry.sequence)
        for entry, one in zip(entries, made.data, strict=True):
            toy = stage.stage.scheduler
            assert len(toy.orders[entry.identifier].tokens) == 1
            count = len(toy.orders[entry.identifier].request.prompt_tokens)
            last = toy.states(count, 0.0, 1)[-1]
            assert np.allclose(one.embedding, last / np.linalg.norm(last), atol=1e-6)
        assert made.usage.prompt_tokens == made.usage.total_tokens == len("hello") + len("good day")
        fees = sum(entry.fee or 0 for entry in stage.stage.session.journal.all())
        assert made.usage.cost_units == str(fees)  # type: ignore[attr-defined]
        plain = (await ask(stage, input=tokens_of("hello")[:-1])).json()
        coded = (await ask(stage, encoding_format="base64")).json()
        vector = np.frombuffer(base64.b64decode(coded["data"][0]["embedding"]), "<f4")
        assert np.array_equal(vector, np.array(plain["data"][0]["embedding"], "<f4"))
        assert set(plain) == {"object", "data", "model", "usage", "troth"}
        assert set(plain["data"][0]) == {"object", "index", "embedding"}


@pytest.mark.slow
async def test_a_batch_is_larger_than_the_places(tmp_path: Path) -> None:
    async with tab_gateway(tmp_path, concurrent=3) as stage:
        texts = [f"text {number}" for number in range(20)]
        answer = (await ask(stage, input=texts)).json()
        assert [one["index"] for one in answer["data"]] == list(range(20))
        assert len({entry.question for entry in stage.stage.session.journal.all()}) == 20
        assert (await ask(stage)).status_code == 200
        assert len(answer["troth"]["tasks"]) == 20


IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"input": ""}, "input"),
    ({"input": []}, "input"),
    ({"input": ["a", ""]}, "input"),
    ({"input": [[1, 2], []]}, "input[1]"),
    ({"input": [2**31]}, "input"),
    ({"input": ["x"] * (MOST_INPUTS + 1)}, "input"),
    ({"input": {"text": "a"}}, "input"),
    ({"dimensions": 8}, "dimensions"),
    ({"encoding_format": "int8"}, "encoding_format"),
    ({"troth": {"check": "self"}}, "troth.check"),
]


async def test_what_cannot_be_is_refused_before_anything_is_ordered(tmp_path: Path) -> None:
    async with tab_gateway(tmp_path) as stage:
        for fields, param in IMPOSSIBLE:
            refused = await ask(stage, **fields)
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
        assert not stage.stage.session.journal.all()


async def test_the_gateway_s_own_check_by_itself_is_refused_too(tmp_path: Path) -> None:
    async with tab_gateway(tmp_path, check="self") as stage:
        assert (await ask(stage)).json()["error"]["param"] == "troth.check"


def _other(_order: Any, shown: LastRow) -> LastRow:
    return replace(shown, row=bytes(len(shown.row)))


def _none(_order: Any, _shown: LastRow) -> JSONResponse:
    return JSONResponse({"error": {"code": "too_late", "message": "gone"}}, 409)


@pytest.mark.slow
@pytest.mark.parametrize(("tamper", "word"), [(_other, "not the last row"), (_none, "gone")])
async def test_a_state_that_is_bent_on_its_way_or_kept_back_is_no_embedding(
    tamper: Any, word: str, tmp_path: Path
) -> None:
    async with tab_gateway(tmp_path, concurrent=1) as stage, openai(stage) as client:
        stage.stage.scheduler.tamper_row = tamper
        from openai import APIStatusError

        with pytest.raises(APIStatusError) as refused:
            await client.embeddings.create(model="toy-float32", input=["one", "two", "three"])
        assert refused.value.status_code == 502
        error: Any = refused.value.body
        assert (error["code"], error["troth"]["charged"]) == ("state_not_shown", True)
        assert word in error["message"]
        # The order itself is sound: it goes on to its end. What was not ordered yet never is, and costs no budget.
        (entry,) = stage.stage.session.journal.all()
        assert entry.phase in RUNNING | {Phase.UNDRAWN, Phase.CHECKED}
        assert stage.gateway.gateway.ledger.spent("1970-01-01") == 0


async def test_what_was_not_ordered_counts_against_no_budget(tmp_path: Path) -> None:
    async with tab_gateway(tmp_path, concurrent=1, limits=SpendingLimits(day=100_000)) as stage:
        from troth.client.gateway.ledger import today

        stage.stage.scheduler.tamper_row = _none
        assert (await ask(stage, input=["one"] * 40)).status_code == 502
        one = stage.gateway.gateway.ledger.spent(today())
        assert 0 < one < 5 * max(entry.most for entry in stage.stage.session.journal.all())


async def test_who_waits_for_the_check_is_told_of_a_rejection(tmp_path: Path) -> None:
    async with tab_gateway(tmp_path) as stage:
        checked = (await ask(stage, troth={"check": "always", "wait": "verdict"})).json()
        assert checked["troth"]["outcome"] == "checked"
        stage.stage.scheduler.node_noise, stage.stage.scheduler.opinion = 1.0, Opinion.REJECT
        refused = await ask(stage, troth={"check": "always", "wait": "verdict"})
        assert refused.json()["error"]["code"] == "answer_rejected"
        receipt = (await stage.get("/v1/receipts/" + checked["troth"]["receipt"].rpartition("/")[2])).json()
        assert receipt["outcome"] == "checked"


async def test_a_class_that_tolerates_any_state_gives_no_embeddings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "row_tolerance", lambda _rules: np.inf)
    async with tab_gateway(tmp_path) as stage:
        error = (await ask(stage)).json()["error"]
        assert (error["code"], error["param"]) == ("unsupported_value", "model")
        assert "float32 class" in error["message"]
        assert not stage.stage.session.journal.all()
