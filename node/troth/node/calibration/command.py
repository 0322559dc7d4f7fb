"""`troth calibrate`: measure a model's honest noise and what cheats look like, and find a class' thresholds.

The help of the command imports no torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from troth.node.home import DEFAULT_HOME, HomeOption
from troth.transport.command_options import JsonOption, show

app = typer.Typer(add_completion=False)


@app.command()
def calibrate(
    model: Annotated[str, typer.Argument(help="Name or path of a model folder.")],
    *,
    class_dtype: Annotated[str, typer.Option("--class", help="float32 or bfloat16: the class' dtype.")] = "float32",
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for data and report; resumes from it. Default: calibrations/ in the home."),
    ] = None,
    prompts: Annotated[int, typer.Option("--prompts", min=2, help="How many of the 64 prompts to run.")] = 64,
    tokens: Annotated[int, typer.Option("--tokens", min=16, help="Length of each text.")] = 64,
    segments: Annotated[int, typer.Option("--segments", min=1, help="Equal slices to cut the model into.")] = 2,
    threads: Annotated[int, typer.Option("--threads", min=1, help="Torch threads.")] = 2,
    engine: Annotated[str, typer.Option("--engine", help="vllm: also this machine's honest runs of vLLM.")] = "torch",
    device: Annotated[str, typer.Option("--device", envvar="TROTH_DEVICE", help="cpu or cuda.")] = "cpu",
    cards: Annotated[int, typer.Option("--cards", min=1, help="Over how many cards vLLM shares layers out.")] = 1,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Run honest nodes and cheats over the prompts, and write report.json and report.html.

    Takes an hour or more on a few cores; when it is stopped, the same command goes on where it was. For a class that
    mixed machines serve with vLLM, run it on each of them with --engine vllm and the same --out. The report goes to
    `troth model register MODEL --calibration report.json`, which registers a class with its thresholds.
    """
    from troth.node.calibration.running import run

    folder = out or home / "calibrations" / f"{Path(model).name}-{class_dtype}"
    options = {"prompts": prompts, "tokens": tokens, "segments": segments, "threads": threads, "cards": cards}
    show(run(model, class_dtype, folder, home=home, engine=engine, device=device, **options), as_json)
