"""`troth demo`: the main job, for real, on this machine."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from troth.testnet.display import Display

app = typer.Typer(help="Play the main job on a local network.")

QUESTION = "What is the capital of France, and what is it known for?"

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


Question = Annotated[str, typer.Option("--question", help="What the client asks.")]
Expected = Annotated[str, typer.Option("--expect", help="A word the answer must hold.")]
Keep = Annotated[bool, typer.Option("--keep", help="Leave the network running until Ctrl-C.")]
Picture = Annotated[Path | None, typer.Option("--picture", help="Also write the run as an SVG picture.")]


@app.callback(invoke_without_command=True)
def demo(
    context: typer.Context,
    *,
    keep: Keep = False,
    question: Question = QUESTION,
    expect: Expected = "Paris",
    models: Models = Path("~/.troth"),
    picture: Picture = None,
) -> None:
    """A tab, an overlay, ten nodes, instant answers, checks, two that cheat, a court, audits; exits non-zero if any
    did not happen."""
    if context.invoked_subcommand is not None:
        return
    _end_as_interrupted()
    from troth.demo.play import play

    with _recorded(picture) as display, tempfile.TemporaryDirectory(prefix="troth-demo-") as folder:
        play(Path(folder), models.expanduser(), display, question, expect, keep=keep)


@app.command()
def pool(
    *,
    question: Annotated[str, typer.Option("--question", help="What the client asks.")] = QUESTION,
    expect: Annotated[str, typer.Option("--expect", help="A word the answer must hold.")] = "Paris",
    models: Models = Path("~/.troth"),
) -> None:
    """Eight nodes of three kinds in two regions are given their slices; one is killed in the middle of an answer."""
    _end_as_interrupted()
    from troth.demo.pool_play import play
    from troth.testnet.display import Display

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
    from troth.demo.exact_play import play
    from troth.testnet.display import Display

    with tempfile.TemporaryDirectory(prefix="troth-demo-") as folder:
        play(Path(folder), models.expanduser(), Display(), engine)


@contextmanager
def _recorded(picture: Path | None) -> Iterator[Display]:
    """Where to print; the run becomes a picture if it ends well."""
    from rich.console import Console

    from troth.testnet.display import WIDTH, Display

    width = WIDTH if picture or not sys.stdout.isatty() else None
    console = Console(record=picture is not None, width=width, highlight=False)
    yield Display(console)
    if picture is not None:
        console.save_svg(str(picture), title="make demo")


def _end_as_interrupted() -> None:
    # SIGINT as well: a shell starts background jobs with it ignored. SIGHUP: the terminal was closed.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _as_interrupt)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # not under nohup
        signal.signal(signal.SIGHUP, _as_interrupt)


def _as_interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
