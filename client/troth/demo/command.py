"""`troth demo`: the main job, for real, on this machine."""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

app = typer.Typer(help="Play the main job on a local network.")

QUESTION = "What is the capital of France, and what is it known for?"
RELAYS = 18
"""Four paths of three, and two in reserve."""
CHEATED_QUESTION = "What is the capital of Italy? Answer in one sentence."


Models = Annotated[
    Path, typer.Option("--models", envvar="TROTH_MODELS", help="Home folder that keeps the converted model.")
]


def _known_engine(name: str) -> str:
    if name not in {"", "torch", "vllm"}:
        raise typer.BadParameter(f"there is no engine '{name}'; use torch or vllm")
    return name


Engine = Annotated[
    str,
    typer.Option(
        "--engine",
        envvar="TROTH_ENGINE",
        help="torch or vllm; default: vllm where it is installed.",
        callback=_known_engine,
    ),
]


@app.callback(invoke_without_command=True)
def demo(
    context: typer.Context,
    *,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the network running until Ctrl-C.")] = False,
    question: Annotated[str, typer.Option("--question", help="What the client asks first.")] = QUESTION,
    expect: Annotated[str, typer.Option("--expect", help="A word the answer must hold.")] = "Paris",
    models: Models = Path("~/.troth"),
    dtype: Annotated[
        str, typer.Option("--dtype", help="Of the class that is served: float32 or bfloat16.")
    ] = "float32",
    picture: Annotated[Path | None, typer.Option("--picture", help="Also write the run as an SVG picture.")] = None,
) -> None:
    """A chain, a scheduler, ten nodes, an overlay, two questions, an audit; exits non-zero if any did not happen."""
    if context.invoked_subcommand is not None:
        return
    _end_as_interrupted()
    from rich.console import Console

    from troth.demo.display import WIDTH, Display
    from troth.demo.plan import Plan
    from troth.demo.play import Questions, play

    recorded = Console(
        record=picture is not None, width=WIDTH if picture or not sys.stdout.isatty() else None, highlight=False
    )
    display = Display(recorded)
    with tempfile.TemporaryDirectory(prefix="troth-demo-") as folder:
        questions = Questions(question, expect, CHEATED_QUESTION)
        play(Path(folder), models.expanduser(), display, questions, plan=Plan(dtype=dtype, relays=RELAYS), keep=keep)
    if picture is not None:
        recorded.save_svg(str(picture), title="make demo")


@app.command()
def pool(
    *,
    question: Annotated[str, typer.Option("--question", help="What the client asks.")] = QUESTION,
    expect: Annotated[str, typer.Option("--expect", help="A word the answer must hold.")] = "Paris",
    models: Models = Path("~/.troth"),
) -> None:
    """Eight nodes of three kinds in two regions are given their slices; one is killed in the middle of an answer."""
    _end_as_interrupted()
    from troth.demo.display import Display
    from troth.demo.pool_play import play

    with tempfile.TemporaryDirectory(prefix="troth-demo-") as folder:
        play(Path(folder), models.expanduser(), Display(), question, expect)


@app.command()
def market(
    *,
    question: Annotated[str, typer.Option("--question", help="What the client asks.")] = QUESTION,
    expect: Annotated[str, typer.Option("--expect", help="A word the answer must hold.")] = "Paris",
    models: Models = Path("~/.troth"),
) -> None:
    """On tabs: a tab, ten nodes, instant answers, checks that the client draws, an int8 cheat, money, an audit."""
    _end_as_interrupted()
    from troth.demo.display import Display
    from troth.demo.market_play import play

    with tempfile.TemporaryDirectory(prefix="troth-demo-") as folder:
        play(Path(folder), models.expanduser(), Display(), question, expect)


@app.command()
def exact(
    *,
    engine: Engine = "",
    models: Models = Path("~/.troth"),
) -> None:
    """Nodes that host a whole model and compute the same bits: a conversation, verified by equal roots."""
    _end_as_interrupted()
    from troth.demo.display import Display
    from troth.demo.exact_play import play

    with tempfile.TemporaryDirectory(prefix="troth-demo-") as folder:
        play(Path(folder), models.expanduser(), Display(), engine)


def _end_as_interrupted() -> None:
    # SIGINT as well: a shell starts background jobs with it ignored. SIGHUP: the terminal was closed.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _as_interrupt)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # not under nohup
        signal.signal(signal.SIGHUP, _as_interrupt)


def _as_interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
