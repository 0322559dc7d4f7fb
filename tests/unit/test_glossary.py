"""One word, one concept: what the glossary names is called so in code, and nothing else is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from support.sources import PACKAGES, Source, class_places, sources

pytestmark = pytest.mark.slow  # it parses all packages

ROOT = Path(__file__).parents[2]
ROWS = re.findall(r"^\| ([^|]+?) \| ([^|]+?) \|", (ROOT / "docs" / "glossary.md").read_text("utf-8"), re.MULTILINE)
WORDS = [word.strip().removeprefix("to ") for words, _ in ROWS for word in words.split(",")]
MEANT = {
    "Acknowledged": "protocol/troth/protocol/market/life.py",
    "Admission": "protocol/troth/protocol/market/signed.py",
    "Amounts": "client/troth/client/gateway/serving.py",
    "Ask": "protocol/troth/protocol/market/types.py",
    "Asset": "protocol/troth/protocol/amounts.py",
    "Ballot": "protocol/troth/protocol/market/ballots.py",
    "Cell": "overlay/troth/overlay/cells/format.py",
    "Channel": "transport/troth/transport/channel.py",
    "Check": "protocol/troth/protocol/market/life.py",
    "Circuit": "overlay/troth/overlay/circuits/circuit.py",
    "Circuits": "overlay/troth/overlay/sessions/session.py",
    "Claim": "protocol/troth/protocol/market/types.py",
    "Clove": "overlay/troth/overlay/sida/clove.py",
    "Committee": "overlay/troth/overlay/relay/configuration.py",
    "Committees": "protocol/troth/protocol/market/shipped.py",
    "Conviction": "protocol/troth/protocol/market/convictions.py",
    "Credit": "protocol/troth/protocol/credit.py",
    "Directory": "overlay/troth/overlay/circuits/descriptors.py",
    "Dispute": "protocol/troth/protocol/disputes/game.py",
    "Draw": "protocol/troth/protocol/market/signed.py",
    "Entries": "committee/troth/committee/directory/proposal.py",
    "Evidence": "cases/troth/cases/evidence.py",
    "Finding": "audit/troth/audit/report.py",
    "Grammar": "protocol/troth/protocol/grammar.py",
    "Group": "node/troth/node/group/group.py",
    "Guard": "overlay/troth/overlay/paths/guards.py",
    "Guards": "overlay/troth/overlay/paths/guards.py",
    "Imprints": "protocol/troth/protocol/imprints/naming.py",
    "Link": "overlay/troth/overlay/circuits/link.py",
    "Lottery": "protocol/troth/protocol/market/bodies.py",
    "Measurement": "overlay/troth/overlay/attestation/measurement.py",
    "Member": "committee/troth/committee/directory/member.py",
    "Notes": "node/troth/node/orders/notes.py",
    "Openings": "client/troth/client/orders/evidence.py",
    "Operator": "transport/troth/transport/identity.py",
    "Order": "protocol/troth/protocol/market/signed.py",
    "Orders": "scheduler/troth/scheduler/orders/service.py",
    "Owner": "scheduler/troth/scheduler/commands/registering.py",
    "Paths": "overlay/troth/overlay/sessions/asking.py",
    "Pipeline": "routing/troth/routing/placement/plan.py",
    "Placement": "routing/troth/routing/placement/plan.py",
    "Promise": "protocol/troth/protocol/market/signed.py",
    "Receipt": "protocol/troth/protocol/market/receipt.py",
    "Result": "protocol/troth/protocol/market/signed.py",
    "Results": "protocol/troth/protocol/market/bodies.py",
    "Reviewer": "cases/troth/cases/reviewing.py",
    "Row": "protocol/troth/protocol/market/signed.py",
    "Rows": "protocol/troth/protocol/wire.py",
    "Segment": "protocol/troth/protocol/types.py",
    "Session": "overlay/troth/overlay/sessions/session.py",
    "Slice": "routing/troth/routing/placement/plan.py",
    "Step": "protocol/troth/protocol/arithmetic/operations.py",
    "Suspect": "protocol/troth/protocol/market/suspicion.py",
    "Tab": "protocol/troth/protocol/market/types.py",
    "Ticket": "protocol/troth/protocol/tickets/messages.py",
    "Traces": "cases/troth/cases/defending.py",
    "Transforms": "protocol/troth/protocol/transforms.py",
    "Tunnel": "transport/troth/transport/tunnel_client.py",
    "Verdict": "protocol/troth/protocol/market/signed.py",
    "Verdicts": "protocol/troth/protocol/market/bodies.py",
    "Verifiers": "routing/troth/routing/placement/plan.py",
    "Voucher": "protocol/troth/protocol/market/types.py",
    "Watcher": "audit/troth/audit/watching/looks.py",
    "Word": "protocol/troth/protocol/market/signed.py",
}
"""Public classes that bear a word of the glossary alone, as one or as many, and where each lies: it means that word."""
NO_CHAIN = ("routing/", "protocol/troth/protocol/market/rows.py")
"""Here nothing is named after a blockchain: machines form a pipeline, and rows are hashed one after the other."""


def singular(word: str) -> str:
    """`entry` of `entries`; a word that is no plural as it is."""
    return word if word.endswith("ss") else re.sub("s$", "", re.sub("ies$", "y", word))


def named(source: Source) -> set[str]:
    """Names that a file gives: to classes, functions, parameters, fields and variables."""
    found: set[str] = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def test_the_glossary_has_each_word_once() -> None:
    words = [word for word in WORDS if word not in {"word", "---"}]
    assert len(words) > 100
    assert sorted({word for word in words if words.count(word) > 1}) == []


def test_each_entry_is_one_sentence() -> None:
    assert [meaning for _, meaning in ROWS if ". " in meaning] == []


def test_a_class_that_bears_a_word_alone_means_it() -> None:
    words = set(WORDS)
    bearers = {
        name: places[0].partition(":")[0]
        for name, places in class_places().items()
        if not name.startswith("_") and (name.lower() in words or singular(name.lower()) in words)
    }
    assert bearers == MEANT, "say whose it is (`EngineSteps`), or move the word in this table with the thing it names"


@pytest.mark.parametrize("folder", NO_CHAIN)
def test_a_chain_is_the_blockchain(folder: str) -> None:
    files = [source for source in sources(*PACKAGES) if source.name.startswith(folder)]
    assert files
    found = {(source.name, name) for source in files for name in named(source) if "chain" in name.lower().split("_")}
    assert found == set()
