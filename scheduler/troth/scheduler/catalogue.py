"""What this scheduler serves: classes, how it splits their layers, and the texts a client needs to speak to a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from troth.protocol.identifiers import fee
from troth.protocol.state import State
from troth.protocol.types import ExecutionClass, Hash32, ModelDescriptor, Segment, segments_from_ends
from troth.scheduler.errors import UnknownClass
from troth.scheduler.served import Served


@dataclass(frozen=True, slots=True)
class Terms:
    """A served class with what the chain knows of it, and how its layers are split now."""

    served: Served
    execution_class: ExecutionClass
    model: ModelDescriptor
    segments: tuple[Segment, ...]

    @property
    def ends(self) -> tuple[int, ...]:
        """Where the segments end."""
        return tuple(segment.end for segment in self.segments)

    @property
    def fee(self) -> int:
        """Wei for one task."""
        return fee(self.execution_class, len(self.segments))


class Catalogue:
    """The served classes by id. `ends_of` says into which segments a class is split now."""

    def __init__(self, served: Iterable[Served], ends_of: Callable[[Served], tuple[int, ...]] | None = None) -> None:
        self._ends_of = ends_of or (lambda entry: entry.ends)
        self._served = {entry.class_id: entry for entry in served}

    def ids(self) -> list[Hash32]:
        """The served class ids."""
        return list(self._served)

    def served(self, class_id: Hash32) -> Served:
        """The entry of a class; raises UnknownClass."""
        entry = self._served.get(class_id)
        if entry is None:
            raise UnknownClass(
                "This scheduler does not serve the execution class",
                "0x" + class_id.hex(),
                "GET /v1/info lists what it serves.",
            )
        return entry

    def terms(self, class_id: Hash32, state: State) -> Terms:
        """The entry with class and model from the chain; raises UnknownClass if they are not registered there."""
        served = self.served(class_id)
        execution_class = state.classes.get(class_id)
        model = state.models.get(execution_class.model) if execution_class else None
        if execution_class is None or model is None:
            raise UnknownClass(
                "The execution class is not registered on chain",
                "0x" + class_id.hex(),
                "Register model and class first.",
            )
        return Terms(served, execution_class, model, segments_from_ends(self._ends_of(served), model.layers))

    def problems(self, state: State) -> list[str]:
        """Why a served class cannot be served now; empty if all is well."""
        found = []
        for class_id, entry in self._served.items():
            try:
                terms = self.terms(class_id, state)
            except UnknownClass as error:
                found.append(str(error))
                continue
            if terms.model.architecture != entry.texts.architecture:
                found.append(
                    f"class 0x{class_id.hex()}: the model folder holds another tokenizer, template or configuration"
                )
        return found
