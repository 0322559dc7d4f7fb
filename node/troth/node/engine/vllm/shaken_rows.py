"""Requests of vLLM whose entering rows have their last bits changed, as a verifier's third look asks for.

Such a request runs beside all others. In each step its own rows are changed before the first layer, and no other's:
the node goes on writing texts meanwhile. A step that reads several positions of a prompt is never a captured graph, so
that what stands here runs; the node counts what was changed, and takes nothing of which a part was not. Keys and
values that come from changed rows belong to nobody else's prompt: `core.Core.run` gives such a request a cache of its
own name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from troth.node.engine.shaking import STRONGER, Shake
from troth.node.engine.vllm.row_frames import Part
from troth.node.engine.vllm.sampling_words import SHAKE


def shake_from_words(words: Mapping[str, Any] | None) -> Shake | None:
    """What `sampling_words.shake_words` says; None for requests whose rows stay as they are."""
    if not words or SHAKE not in words:
        return None
    strongly, alike, seed = words[SHAKE]
    return Shake(STRONGER if strongly else 1, alike, seed)


class ShakenRows:
    """What is changed in the worker of one model runner."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._shakes: dict[str, Shake] = {}
        self._changed: dict[str, int] = {}
        self._batch: Any = None

    def install(self) -> None:
        """Follow the runner's steps from now on, unless the model has no list of layers to enter."""
        runner = self._runner
        layer = first_layer(runner.model, int(runner.model_config.get_total_num_hidden_layers()))
        if layer is None:
            return
        layer.register_forward_pre_hook(self._enter, with_kwargs=True)
        runner.execute_model = self._following(runner.execute_model)
        if hasattr(runner, "prepare_inputs"):  # the second runner hands a step's batch on and does not keep it
            runner.prepare_inputs = self._noting(runner.prepare_inputs)

    def take_changed(self, name: str) -> int:
        """How many rows of a request were changed; it is forgotten with that. None are where this model's layers take
        other rows than most: ending vLLM for it would let a client end it."""
        return self._changed.pop(name, 0)

    def _following(self, plain: Any) -> Any:
        def execute_model(step: Any, *given: Any, **named: Any) -> Any:
            for finished in step.finished_req_ids:
                self._shakes.pop(finished, None)
            for request in step.scheduled_new_reqs:
                shake = shake_from_words(request.sampling_params and request.sampling_params.extra_args)
                if shake is not None:
                    self._shakes[request.req_id] = shake
            return plain(step, *given, **named)

        return execute_model

    def _noting(self, plain: Any) -> Any:
        def prepare_inputs(*given: Any, **named: Any) -> Any:
            self._batch = plain(*given, **named)
            return self._batch

        return prepare_inputs

    def _enter(self, layer: Any, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """What the first layer is called with, its rows of such requests changed; None where there are none."""
        if not self._shakes:
            return None
        width = self._runner.model_config.get_hidden_size()
        places: dict[Any, Any] = dict(enumerate(given)) | named
        place = next((place for place, one in places.items() if _are_rows(one, width)), None)
        if place is None:
            return None
        places[place] = self._shaken(places[place])
        return tuple(places.pop(number) for number in range(len(given))), places

    def _shaken(self, states: torch.Tensor) -> torch.Tensor:
        begin, made = 0, states.clone()
        for request, count in _counts(self._runner, self._batch):
            if request in self._shakes:
                made[begin : begin + count] = self._shakes[request](made[begin : begin + count])
                name = _named(request)
                self._changed[name] = self._changed.get(name, 0) + count
            begin += count
        return made


def first_layer(model: Any, layers: int) -> Any:
    """The first of a model's layers, by how many there are; of a model for pictures and text, that of the text.
    None where there is no such list."""
    whole = model.get_language_model() if hasattr(model, "get_language_model") else model
    for module in whole.modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == layers:
            return module[0]
    return None


def parts_of(runner: Any, batch: Any) -> list[Part]:
    """Which request's positions stand in a step's batch, in order.

    Args:
        batch: of the second model runner; None for the first one, which keeps one batch and changes it at each step.
    """
    computed = runner.input_batch.num_computed_tokens_cpu if batch is None else batch.num_computed_tokens_np
    return [
        (_named(request), int(computed[index]), count) for index, (request, count) in enumerate(_counts(runner, batch))
    ]


def _counts(runner: Any, batch: Any) -> list[tuple[str, int]]:
    if batch is None:
        requests, ends = runner.input_batch.req_ids, runner.query_start_loc.np
    else:
        requests, ends = batch.req_ids, batch.query_start_loc_np
    return [(request, int(ends[index + 1] - ends[index])) for index, request in enumerate(requests)]


def _named(request: str) -> str:
    """vLLM adds a dash and letters to our names."""
    return request.partition("-")[0]


def _are_rows(given: Any, width: int) -> bool:
    return isinstance(given, torch.Tensor) and given.is_floating_point() and given.shape[1:] == (width,)
