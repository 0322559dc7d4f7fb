"""`troth demo network`: what a reader is given, and that nobody's folder is taken."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from troth.demo import network_play
from troth.demo.command import app
from troth.testnet.display import Display
from troth.testnet.errors import DemoError
from troth.testnet.network import LocalNetwork

ROOT = Path(__file__).parents[2]


def network_in(folder: Path) -> LocalNetwork:
    """A network of which everything is known and nothing runs."""
    network = LocalNetwork(folder / "a network", folder)
    network.execution_class, network.scheduler.operator = "0xc1", "0x5c"
    return network


def test_a_shell_reads_what_the_tutorials_use(tmp_path: Path) -> None:
    variables = network_play.variables_of(network_in(tmp_path))
    tutorials = "".join(one.read_text() for one in (ROOT / "docs" / "tutorials").glob("*.md"))
    tutorials += (ROOT / "docs" / "how-to" / "services.md").read_text()
    assert [name for name in variables if f"${name}" not in tutorials] == ["TROTH_PASSWORD_FILE"]
    file = tmp_path / "variables"
    file.write_text(network_play.in_shell(variables))
    names = ("NETWORK", "SCHEDULER", "CLASS", "TROTH_HOME")
    shown = subprocess.run(
        ["sh", "-c", '. "$1"; printf "%s|" ' + " ".join(f'"${name}"' for name in names), "sh", str(file)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    home = tmp_path / "a network"
    assert shown == f"{home / 'network.json'}|0x5c|0xc1|{home / 'yours'}|"


def test_a_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    with pytest.raises(DemoError, match="exists already"):
        network_play.play(tmp_path, tmp_path, Display())
    assert (tmp_path / "mine").read_text() == "kept"


def test_the_network_lies_beside_the_models_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    played: list[tuple[Path, Path]] = []
    monkeypatch.setattr(network_play, "play", lambda folder, models, _: played.append((folder, models)))
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["network", "--models", "here"]).exit_code == 0
    assert CliRunner().invoke(app, ["network", "--models", "here", "--folder", "there"]).exit_code == 0
    here = tmp_path / "here"
    assert played == [(here / "network", here), (tmp_path / "there", here)]
