"""An answer whose rows, weights and tokens are at hand, as evidence on a deployed market: honest, or with one token
forged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from troth.cases.evidence import VERSION, Evidence, SegmentRows
from troth.node.engine.head import head_numbers
from troth.node.models.folder import ModelFolder
from troth.node.models.roots.weights_root import weights_root
from troth.node.models.tensor_files import raw_tensors
from troth.protocol import tokens, vrf
from troth.protocol.hashing import keccak256
from troth.protocol.market import checks, messages
from troth.protocol.market.heads import with_head
from troth.protocol.market.messages import sign, state_hash, tab_id
from troth.protocol.market.rows import RowHashes
from troth.protocol.market.signed import Order, Result
from troth.protocol.market.types import ExecutionClass
from troth.protocol.request import Request, canonical_bytes, output_hash, request_hash, tokens_to_words
from troth.protocol.tensors import Dtype, row_size, rows_to_bytes, widen
from troth.protocol.types import Hash32, ModelDescriptor, pack_ends

__all__ = ["HEAD", "Wording", "WrongTokenScene", "describe", "head_matrix", "named", "state_hash", "write_model"]

HEAD = "model.embed_tokens.weight"
PROMPT = (3, 1, 4, 1, 5)
SALT, HEAD_SALT = Hash32(keccak256(b"salt")), Hash32(keccak256(b"head salt"))


def write_model(
    path: Path, rows: int = 96, columns: int = 128, seed: int = 5, *, bfloat16: bool = False
) -> ModelFolder:
    """A folder with a head, and two other tensors around it; the head in float32, or in bfloat16."""
    source = np.random.default_rng(seed)
    path.mkdir()
    tensors = {
        "a.weight": source.standard_normal((4, columns)).astype(np.float32),
        HEAD: source.standard_normal((rows, columns)).astype(np.float32),
        "z.weight": source.standard_normal(columns).astype(np.float32),
    }
    kept: dict[str, Any] = {name: torch.from_numpy(value) for name, value in tensors.items()}
    if bfloat16:
        kept[HEAD] = kept[HEAD].to(torch.bfloat16)
    save_file(kept, path / "model.safetensors")
    config = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": columns, "vocab_size": rows}
    (path / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    (path / "tokenizer.json").write_text("{}")
    return ModelFolder(path)


def describe(folder: ModelFolder, dtype: int = 0) -> ModelDescriptor:
    """The folder's descriptor."""
    config = folder.config
    root = weights_root(raw_tensors(folder.path), None)
    return ModelDescriptor(
        "llama/test/weights-2", config["num_hidden_layers"], config["hidden_size"], config["vocab_size"], dtype, root
    )


def head_matrix(folder: ModelFolder) -> np.ndarray:
    """The head's numbers."""
    tensor = next(one for one in raw_tensors(folder.path) if one.name == HEAD)
    return np.concatenate([rows for _, rows in head_numbers(tensor, 0)])


def named(execution_class: ExecutionClass) -> ExecutionClass:
    """The class with a head that proofs may weigh."""
    return replace(execution_class, name=with_head(execution_class.name, HEAD))


@dataclass
class Wording:
    """How an answer is made: what is asked for, and what the node does with the token of a place."""

    temperature: int = 0
    top_p: int = 1_000_000
    written: int = 6
    scale: float = 1.0
    forged: int | None = None
    rank: int = 1
    seed: int = 1
    segments: tuple[int, ...] = (2,)
    top_k: int = 0
    min_p: int = 0


class WrongTokenScene:
    """Answers on a stage's deployment."""

    def __init__(self, stage: Any, folder: ModelFolder, block: int) -> None:
        self.stage, self.folder, self.block, self.orders = stage, folder, block, 0
        self.weights = head_matrix(folder)

    def answer(self, wording: Wording, states: np.ndarray | None = None) -> Evidence:
        """Evidence of one answer of the stage's first node; ``states``: what chose the tokens (written x columns)."""
        self.orders += 1
        stage, dtype = self.stage, Dtype(self.stage.execution_class.dtype)
        request = Request(
            stage.class_id, PROMPT, wording.written, wording.temperature, wording.top_p, (), top_k=wording.top_k,
            min_p_millionths=wording.min_p,
        )  # fmt: skip
        order = self._order(request, wording.segments)
        digest = messages.order_id(order, stage.market.domain)
        proof = vrf.prove(stage.vrf_secret, messages.infer_alpha(digest))
        rows = self._rows(wording, states, dtype)
        chosen = self._tokens(rows, wording, request, tokens.noise_seed(digest, Hash32(vrf.proof_to_hash(proof))))
        results, data = self._results(digest, order, rows, chosen, wording.segments)
        domain = stage.market.domain
        signers = stage.nodes[: len(results)]
        return Evidence(
            version=VERSION,
            chain_id=domain.chain_id,
            bank=domain.contract,
            tab=stage.client_tab,
            order=sign(order, domain, stage.tab_key.secret),
            nodes=tuple(one.address for one in signers),
            infer_proof=proof,
            results=tuple(sign(one, domain, key.secret) for one, key in zip(results, signers, strict=True)),
            request=canonical_bytes(request),
            answer=tokens_to_words(chosen),
            salt=SALT,
            head_salt=HEAD_SALT,
            rows=(SegmentRows.of(len(results) - 1, data),),
        )

    def _rows(self, wording: Wording, states: np.ndarray | None, dtype: Dtype) -> np.ndarray:
        count, columns = len(PROMPT) + wording.written - 1, self.stage.model.hidden_size
        source = np.random.default_rng(wording.seed)
        rows = (wording.scale * source.standard_normal((count, columns))).astype(np.float32)
        if states is not None:
            rows[len(PROMPT) - 1 :] = states
        return rows if dtype is Dtype.FLOAT32 else (rows.view(np.uint32) >> 16).astype(np.uint16)

    def _tokens(self, rows: np.ndarray, wording: Wording, request: Request, seed: Hash32) -> tuple[int, ...]:
        """What an honest node of this dtype chooses; at the forged place the token of another rank."""
        dtype = Dtype(self.stage.execution_class.dtype)
        weights, chosen = self.weights, []
        if dtype is Dtype.BFLOAT16:
            bits = weights.view(np.uint32).astype(np.uint64)
            weights = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
        first = len(PROMPT) - 1
        for index in range(wording.written):
            logits = np.nan_to_num(weights @ widen(rows[first + index], dtype))
            gumbel = tokens.noise(seed, first + index, len(logits)) if wording.temperature else None
            token = tokens.choose(logits, tokens.Sampling.of(request), gumbel)
            if index == wording.forged:
                scores = logits if gumbel is None else logits + wording.temperature / 1e6 * gumbel
                token = int(np.argsort(-scores)[wording.rank])
            chosen.append(token)
        return tuple(chosen)

    def _order(self, request: Request, ends: Sequence[int]) -> Order:
        blank = Hash32(keccak256(b"blank"))
        return Order(
            tab=tab_id(self.stage.client_tab), sequence=self.orders, execution_class=self.stage.class_id,
            request_hash=request_hash(request, SALT), ends=pack_ends(tuple(ends)), prompt_price=1, cached_price=1,
            written_price=1, node_share=8_000, max_fee=10**13, check_rate=1_000_000, deadline=1 << 40,
            reference_block=self.block, draw_hash=blank, tiles_hash=blank, reply_key=blank,
        )  # fmt: skip

    def _results(
        self, digest: Hash32, order: Order, rows: np.ndarray, chosen: tuple[int, ...], ends: Sequence[int]
    ) -> tuple[list[Result], bytes]:
        dtype = Dtype(self.stage.execution_class.dtype)
        data = rows.astype(rows.dtype.newbyteorder("<")).tobytes()
        if np.isfinite(widen(rows, dtype)).all():
            assert data == rows_to_bytes(rows, dtype)
        results, entered = [], order.request_hash
        for segment in range(len(ends)):
            last = segment == len(ends) - 1
            bound = (*PROMPT, *chosen[:-1]) if segment == 0 else None
            chain, _ = RowHashes(digest, segment).extend(data, row_size(rows.shape[1], dtype), bound)
            after = checks.head(digest, HEAD_SALT, chain.link)
            results.append(
                Result(
                    order=digest, segment=segment, input_head=entered, output_head=after, prompt=len(PROMPT) - 1,
                    cached=1, written=len(chosen), trace_commitment=Hash32(keccak256(b"trace")),
                    output_hash=output_hash(SALT, chosen) if last else Hash32(bytes(32)),
                )
            )  # fmt: skip
            entered = after
        return results, data
