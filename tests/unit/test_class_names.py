"""One word, one concept: no two classes of the packages have one name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "protocol", "transport", "network", "overlay", "routing", "node", "scheduler",
    "client", "command", "audit", "committee", "cases", "explorer", "testnet",
)  # fmt: skip


def places() -> dict[str, list[str]]:
    """Where classes are defined, nested and private ones too, by their names."""
    found = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    found[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return found


def test_no_class_name_is_defined_twice():
    defined = places()
    assert {package for package in PACKAGES if any(where[0].startswith(package) for where in defined.values())} == set(
        PACKAGES
    )
    assert {name: where for name, where in defined.items() if len(where) > 1} == {}
