"""SmolLM2 with its real weights, quantised by rounding to the nearest number, once for all tests of a process."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from support.packaged_models import packaged_model
from support.quantised_checkpoints import FORMS, quantise

from troth.node.models.folder import ModelFolder, open_folder


@cache
def quantised_model(form: str) -> ModelFolder:
    """In one of `FORMS`, in groups of 32; `whole` is the model as it is."""
    source = packaged_model()
    if form == "whole":
        return source
    path = Path(shutil.copytree(source.path, Path(mkdtemp(prefix="troth-quantised-")) / form))
    quantise(path, *FORMS[form][1:])
    return open_folder(path)
