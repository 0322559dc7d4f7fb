"""Options that several commands take as one parameter: flags, variables and defaults as if written out."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from troth.transport.command_options import grouped, option_group, show

RpcOption = Annotated[str, typer.Option("--rpc", envvar="TROTH_TEST_RPC", help="A chain node.")]
FolderOption = Annotated[Path, typer.Option("--home", help="A folder.")]


@option_group
class Place:
    """A node of a chain that has to be named, and a folder that need not be."""

    rpc: RpcOption
    home: FolderOption = Path("here")


@option_group
class NumberedPlace(Place):
    """The same, and a number."""

    number: Annotated[int, typer.Option(min=0)] = 7


app = typer.Typer()


@app.command()
@grouped
def look(name: Annotated[str, typer.Argument()] = "nobody", *, place: NumberedPlace, loud: bool = False) -> None:
    """Look there."""
    typer.echo(json.dumps([name, place.rpc, str(place.home), place.number, loud]))


@app.command()
@grouped
def look_twice(*, place: Place) -> None:
    """Look there again."""
    typer.echo(place.rpc)


def seen(*words: str, **variables: str) -> list[object]:
    """What the command was given."""
    result = CliRunner().invoke(app, words, env=variables)
    assert result.exit_code == 0, result.output
    found: list[object] = json.loads(result.output)
    return found


def test_fields_are_options_with_their_flags_and_defaults() -> None:
    assert seen("look", "--rpc", "x") == ["nobody", "x", "here", 7, False]
    assert seen("look", "me", "--number", "9", "--home", "there", "--loud", "--rpc", "x") == [
        "me",
        "x",
        "there",
        9,
        True,
    ]


def test_a_field_is_read_from_its_variable() -> None:
    assert seen("look", TROTH_TEST_RPC="y")[1] == "y"


def test_a_field_without_default_is_demanded() -> None:
    result = CliRunner().invoke(app, ["look"])
    assert result.exit_code == 2
    assert "--rpc" in result.output


def test_bounds_of_fields_hold() -> None:
    assert CliRunner().invoke(app, ["look", "--rpc", "x", "--number", "-1"]).exit_code == 2


def test_a_group_serves_several_commands() -> None:
    assert CliRunner().invoke(app, ["look-twice", "--rpc", "z"]).output == "z\n"


def test_the_help_names_what_the_fields_say() -> None:
    shown = CliRunner().invoke(app, ["look", "--help"], env={"COLUMNS": "200"}).output
    assert all(word in shown for word in ("--rpc", "TROTH_TEST_RPC", "A chain node.", "Look there."))


def test_a_group_cannot_be_changed() -> None:
    place = Place(rpc="x")
    with pytest.raises(dataclasses.FrozenInstanceError):
        place.rpc = "y"  # type: ignore[misc]


def test_what_strangers_wrote_on_a_chain_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Not every contract asks for plain text: a name could clear the screen, or look like a line of ours."""
    show({"name": "mine", "sources": ["a\x1b[2J\nowner  0x1", "b\u202e"]}, False)
    assert capsys.readouterr().out.splitlines() == [
        "name     mine",
        "sources  a\ufffd[2J\ufffdowner  0x1",
        "         b\ufffd",
    ]
