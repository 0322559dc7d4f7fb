"""`troth demo`: the main job, for real, on this machine."""

from __future__ import annotations

import io
import re
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from troth.transport.command_options import folder_path

if TYPE_CHECKING:
    from troth.testnet.display import Display

app = typer.Typer(help="Play the main job on a local network.")

QUESTION = "What is the capital of France, and what is it known for?"
MOST_PIXELS = 1500
"""Of a picture: what is taller is not looked at to its end."""

Models = Annotated[
    Path,
    typer.Option(
        "--models",
        file_okay=False,
        callback=folder_path,
        envvar="TROTH_MODELS",
        help="Home folder that keeps the converted model.",
    ),
]
Question = Annotated[str, typer.Option("--question", help="What the client asks.")]
Expected = Annotated[str, typer.Option("--expect", help="A word the answer must hold.")]
Keep = Annotated[bool, typer.Option("--keep", help="Leave the network running until Ctrl-C.")]
Picture = Annotated[Path | None, typer.Option("--picture", help="Also write the run's main moments as an SVG picture.")]


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


@app.command()
def court(*, models: Models = Path("~/.troth")) -> None:
    """All drawn verifiers and the inferencer are in one hand; one node that was not drawn convicts by arithmetic."""
    _end_as_interrupted()
    from troth.demo.court_play import play
    from troth.testnet.display import Display

    with tempfile.TemporaryDirectory(prefix="troth-demo-") as folder:
        play(Path(folder), models.expanduser(), Display())


@app.command()
def tickets(*, models: Models = Path("~/.troth")) -> None:
    """A wallet buys tickets, an order is paid by them, and nothing joins the two."""
    _end_as_interrupted()
    from troth.demo.tickets_play import play
    from troth.testnet.display import Display

    with tempfile.TemporaryDirectory(prefix="troth-demo-") as folder:
        play(Path(folder), models.expanduser(), Display())


@app.command()
def network(
    *,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder",
            file_okay=False,
            callback=folder_path,
            help="Where its files go; default: `network` in the models' folder.",
        ),
    ] = None,
    models: Models = Path("~/.troth"),
) -> None:
    """A network to try the commands on, until Ctrl-C: ten nodes, a scheduler, relays, and accounts with test money."""
    _end_as_interrupted()
    from troth.demo.network_play import play
    from troth.testnet.display import Display

    home = models.expanduser()
    play((folder or home / "network").expanduser().resolve(), home.resolve(), Display())


@contextmanager
def _recorded(picture: Path | None) -> Iterator[Display]:
    """Where to print; the main moments become a picture if the run ends well."""
    from rich.console import Console

    from troth.testnet.display import WIDTH, Display

    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    if picture is None:
        yield Display(console)
        return
    recorded = Console(file=io.StringIO(), record=True, width=WIDTH, highlight=False)
    yield Display(console, recorded)
    _save(recorded.export_svg(title="make demo"), picture)


def _save(drawn: str, picture: Path) -> None:
    from troth.testnet.errors import DemoError

    found = re.search(r'viewBox="0 0 [\d.]+ ([\d.]+)"', drawn)
    if found is None or float(found[1]) > MOST_PIXELS:
        height = "unknown" if found is None else f"{found[1]} pixels"
        raise DemoError(f"The picture is taller than {MOST_PIXELS} pixels", height, "Show fewer moments (moments.py).")
    picture.write_text(drawn, encoding="utf-8")


def _end_as_interrupted() -> None:
    # SIGINT as well: a shell starts background jobs with it ignored. SIGHUP: the terminal was closed.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _as_interrupt)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # not under nohup
        signal.signal(signal.SIGHUP, _as_interrupt)


def _as_interrupt(_signal: int, _frame: FrameType | None) -> None:
    # `timeout` sends its signal to this process and then to its group: the second one must not end the tidying up.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is _as_interrupt:
            signal.signal(number, _while_it_ends)
    raise KeyboardInterrupt


def _while_it_ends(_signal: int, _frame: FrameType | None) -> None:
    """It is ending already. No SIG_IGN: programs that are started would inherit that."""
