"""A model folder, described: its descriptor and its id."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from troth.node.errors import ModelError
from troth.node.models.descriptor import DTYPE_NAMES, Progress, describe
from troth.node.models.folder import ModelFolder
from troth.protocol.identifiers import model_id
from troth.protocol.types import Hash32, ModelDescriptor


@dataclass(frozen=True, slots=True)
class ModelReport:
    """A described folder."""

    folder: ModelFolder
    descriptor: ModelDescriptor
    model_id: Hash32


def report_of(folder: ModelFolder, descriptor: ModelDescriptor) -> ModelReport:
    """The report of a described folder."""
    return ModelReport(folder, descriptor, model_id(descriptor))


def hexadecimal(value: bytes) -> str:
    """0x-prefixed digits."""
    return "0x" + value.hex()


def describe_with_progress(folder: ModelFolder, dtype: str) -> ModelDescriptor:
    """Describe a folder, with a progress bar on a terminal while weights are hashed.

    Raises:
        ModelError: it is not sound, whether it was imported or not, or no engine computes it in this dtype; said
            before anything is hashed.
    """
    if dtype not in DTYPE_NAMES:
        raise ModelError("this dtype is not supported", dtype, f"Use one of {', '.join(DTYPE_NAMES)}.")
    from troth.node.models.quantised import require_computed
    from troth.node.models.sources import require_sound

    number = DTYPE_NAMES[dtype]
    total = sum(one.length for one in require_sound(folder))
    require_computed(folder.quantisation, number)
    with hashing(total) as progress:
        return describe(folder, number, progress)


@contextmanager
def hashing(total: int) -> Iterator[Progress]:
    """A bar on a terminal, told bytes of weights as they are hashed; ``cached_weights_root`` reads each twice."""
    from rich.console import Console
    from rich.progress import DownloadColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    columns = (*Bars.get_default_columns()[:2], DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task("hashing weights, twice", total=2 * total)
        yield lambda size: bars.advance(bar, size)
