"""Sub-commands found through the entry-point group `troth.commands`, loaded only when one is called.

Loading lazily keeps `troth --help` fast and lets a broken package break its own sub-command only.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from troth.command import examples
from troth.command.rendering import INSTALL_AGAIN, absent_package
from troth.network.option import offer_network
from troth.protocol.errors import TrothError

GROUP = "troth.commands"

# One line each for `troth --help`, which must not import the packages to ask them.
SUMMARIES = {
    "node": "Run a node: register, serve, exit.",
    "network": "Create a network on any chain; keep, show, verify it.",
    "model": "Describe models: weights roots, descriptors, ids.",
    "calibrate": "Measure honest noise and cheats; find a class' thresholds.",
    "scheduler": "Run a scheduler: register, serve, exit.",
    "client": "Use the network: open a tab, ask, serve, receipts.",
    "audit": "Re-check deployments, logs and receipts from public data.",
    "case": "Act on evidence: convict, go to court, summon.",
    "explorer": "Look at a deployment in a browser; needs no key.",
    "org": "Have models of your own hosted for credits, and host others'.",
    "demo": "Start a whole network on this machine.",
    "committee": "Run a member of the directory's committee.",
    "relay": "Run a relay of the anonymous overlay.",
}


SHORT = {"models": (("client", "models"), "List models on offer with their prices, the cheapest first.")}
"""Commands that are so often typed that their group may be left out: the words that they stand for, and a summary."""


class CommandError(TrothError):
    """A sub-command could not be started: what happened, the offending value, and what to do about it."""


@cache
def plugins() -> Mapping[str, EntryPoint]:
    """The installed sub-commands by name, in alphabetical order. What is installed is read once: it takes milliseconds,
    and a command asks for it seven times."""
    return {point.name: point for point in sorted(entry_points(group=GROUP), key=lambda point: point.name)}


@cache
def load(point: EntryPoint) -> Any:
    """Import the Typer application behind an entry point and turn it into a command, once.

    Raises CommandError when the package cannot be imported or does not offer a Typer application.
    """
    try:
        application = point.load()
    except Exception as error:
        raise CommandError(
            f"The sub-command '{point.name}' could not be loaded: {type(error).__name__}: {error}",
            point.value,
            _remedy(error),
        ) from error
    if not isinstance(application, typer.Typer):
        raise CommandError(
            f"The sub-command '{point.name}' is not a Typer application",
            point.value,
            "Correct the entry point in the group troth.commands of the package that offers it.",
        )
    # The root offers completion for all of them. Rich would take [auto] in a help text for markup and leave it out.
    application._add_completion, application.rich_markup_mode = False, None
    command = typer.main.get_command(application)
    command.name = point.name
    offer_network(point.name, command)
    _complete_help(command, point.name)
    return command


def _complete_help(command: Any, path: str) -> None:
    """Lists of commands show each one's first sentence whole, where Click would cut it; commands show examples."""
    command.epilog = examples.shown(path)
    for name, below in getattr(command, "commands", {}).items():
        below.short_help = below.short_help or _first_sentence(below.help or "")
        _complete_help(below, f"{path} {name}")


def _first_sentence(text: str) -> str:
    """Up to the first full stop that ends a sentence, on one line."""
    return " ".join(text.split("\n\n", maxsplit=1)[0].split()).split(". ")[0].removesuffix(".") + "."


def _remedy(error: Exception) -> str:
    if absent_package(error):
        return INSTALL_AGAIN
    return "Reinstall troth; `troth --debug ...` shows where it failed. The other sub-commands still work."


def _meant(name: str, known: Sequence[str]) -> str:
    """What a word that is no command may be meant for: one of a group, or a command with a typing error."""
    below = [path for path in examples.EXAMPLES if path.split()[1:] == [name]]
    if below:
        return f"Did you mean {' or '.join(f'`troth {path}`' for path in below)}?"
    close = difflib.get_close_matches(name, known)
    return f"Did you mean {' or '.join(f'`troth {one}`' for one in close)}?" if close else "`troth --help` lists them."


class LazyGroup(TyperGroup):
    """A command group whose members are imported when they are called, not when they are listed."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of the built-in commands and of all installed sub-commands."""
        return sorted([*super().list_commands(ctx), *plugins(), *SHORT])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command for listing purposes: its name and summary, without its package."""
        built_in = super().get_command(ctx, cmd_name)
        if built_in is not None:
            return built_in
        if cmd_name in SHORT:
            return TyperCommand(cmd_name, help=SHORT[cmd_name][1])
        if cmd_name not in plugins():
            return None
        return TyperCommand(cmd_name, help=SUMMARIES.get(cmd_name, "A sub-command of another package."))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that `args` calls, imported now."""
        words = [*SHORT[args[0]][0], *args[1:]] if args and args[0] in SHORT else args
        known = self.list_commands(ctx)
        if words and words[0] not in known and not words[0].startswith("-"):
            ctx.fail(f"No such command {words[0][:40]!r}. {_meant(words[0], known)}")
        name, command, rest = super().resolve_command(ctx, words)
        point = plugins().get(name) if name is not None else None
        return (name, load(point), rest) if point is not None else (name, command, rest)
