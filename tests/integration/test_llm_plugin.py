"""The plugin of the `llm` command, built and installed as users do it, over a network whose toy model can spell."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.client_network import Network, client_side, network, write_spelling_model
from support.gateway_stage import Gateway, needed, run_program, serving_gateway

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.chain,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]
MODEL = "troth/toy-float32"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["bern", "rome"]}, "cold": {"type": "boolean"}},
    "required": ["city", "cold"],
    "additionalProperties": False,
}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def scene(anvil: Any, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Network]:
    async with network(anvil, tmp_path_factory.mktemp("plugin"), write_spelling_model) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def gateway(scene: Network, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    needed("llm", "hatchling")
    side = await client_side(scene, tmp_path_factory.mktemp("home"))
    async with serving_gateway(side, "--max-tokens", 60) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which pip put the plugin."""
    folder = tmp_path_factory.mktemp("installed")
    shutil.copytree(ROOT / "plugins" / "llm-troth", folder / "source")
    options = ("--no-deps", "--no-index", "--no-build-isolation", "--quiet", "--target", str(folder / "site"))
    words = (sys.executable, "-m", "pip", "install", *options, str(folder / "source"))
    await run_program(None, *words, environment={}, folder=folder)
    return folder / "site"


@dataclass
class Llm:
    """The command, in a folder of its own."""

    folder: Path
    variables: dict[str, str]

    async def __call__(self, *words: str, **variables: str) -> str:
        command = str(Path(sys.executable).parent / "llm")
        return await run_program(None, command, *words, environment=self.variables | variables, folder=self.folder)


@pytest.fixture
def llm(gateway: Gateway, installed: Path, tmp_path: Path) -> Llm:
    variables = {
        "LLM_USER_PATH": str(tmp_path),
        "PYTHONPATH": str(installed),
        # Another plugin of this environment cannot be loaded: of its package Troth uses the weights alone.
        "LLM_LOAD_PLUGINS": "llm-troth",
        "TROTH_GATEWAY_URL": gateway.root,
    }
    (tmp_path / "keys.json").write_text(json.dumps({"troth": gateway.key}))
    return Llm(tmp_path, variables)


async def test_it_lists_asks_and_shows_the_receipt(gateway: Gateway, llm: Llm) -> None:
    assert f"Troth: {MODEL}" in await llm("models")
    streamed = await llm("-m", MODEL, "-o", "max_tokens", "12", "-s", "be brief.", "is it cold?")
    assert 12 <= len(streamed) <= 14
    receipt = json.loads(await llm("troth", "receipt"))
    assert (await gateway.get(f"/v1/receipts/{receipt['id']}")).json()["id"] == receipt["id"]
    # Tools are shown to the toy model, which seldom calls one by itself.
    assert (await llm("-c", "--no-stream", "-T", "llm_version", "-o", "max_tokens", "3", "and now?")).strip()


async def test_schemas_and_prices(llm: Llm) -> None:
    said = json.loads(await llm("-m", MODEL, "--schema", json.dumps(SCHEMA), "is it cold in rome?"))
    assert said["city"] in {"bern", "rome"}
    assert isinstance(said["cold"], bool)
    assert f"{MODEL}  prompt 0." in await llm("troth", "models")
    away = {"TROTH_GATEWAY_URL": "http://127.0.0.1:9"}
    assert MODEL in await llm("models", **away), "as it was listed last"


@pytest.mark.parametrize(
    ("words", "variables", "told"),
    [
        (("models",), {"TROTH_GATEWAY_URL": "http://127.0.0.1:9"}, "troth client serve"),
        (("models",), {"TROTH_GATEWAY_KEY": "other"}, "wants its key"),
        (("models",), {"TROTH_GATEWAY_URL": "file:///etc/passwd"}, "no address"),
        (("receipt",), {}, "name one"),
        (("receipt", "../models/none"), {}, "answers 404"),
    ],
)
async def test_what_is_wrong_is_explained(
    llm: Llm, words: tuple[str, ...], variables: dict[str, str], told: str
) -> None:
    if "TROTH_GATEWAY_KEY" in variables:
        (llm.folder / "keys.json").unlink()
    with pytest.raises(AssertionError, match=told):
        await llm("troth", *words, **variables)
