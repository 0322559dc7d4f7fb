"""The pages as files: a folder that any web server serves, made page by page from the first one on."""

from __future__ import annotations

from collections import deque
from pathlib import Path

from troth.explorer.errors import ExplorerError, NothingHere
from troth.explorer.pages import static_parts
from troth.explorer.site import NAVIGATION, Site

PAGES_LIMIT = 2_000
"""Pages of one export; links to others become plain text."""
MARK = ".troth-explorer"
"""A file that says that a folder is an export, which a later one may overwrite."""


def export(site: Site, folder: Path, most: int = PAGES_LIMIT) -> int:
    """Write all pages, their figures and static parts into a folder; how many pages there are.

    Raises ExplorerError for a folder that holds something else.
    """
    _claim(folder)
    found = _reachable(site, most)
    site.allowed = frozenset(found)
    figures: dict[str, tuple[str, str, dict[str, str]]] = {}
    for page in found:
        body = site.page(page)
        figures |= {path: (name, kind, dict(options)) for path, (name, kind, options) in site.linked.files.items()}
        _write(folder, f"{page or 'index'}.html", body.encode())
    for path, (name, kind, options) in figures.items():
        figure = site.figure(name, options)
        _write(folder, path, (figure.as_csv() if kind == "csv" else figure.as_json()).encode())
    for path, content in static_parts().items():
        _write(folder, f"static/{path}", content)
    return len(found)


def _claim(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()) and not (folder / MARK).is_file():
        raise ExplorerError("The folder holds something else", folder, "Name an empty one, or an earlier export's.")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).write_text("made by troth explorer export\n", encoding="ascii")


def _reachable(site: Site, most: int) -> list[str]:
    """Pages in the order in which links lead to them."""
    waiting = deque(page for page, _ in NAVIGATION)
    found: dict[str, None] = {}
    while waiting and len(found) < most:
        page = waiting.popleft()
        if page in found:
            continue
        try:
            site.page(page)
        except NothingHere:
            continue
        found[page] = None
        waiting.extend(sorted(site.linked.pages - found.keys()))
    return list(found)


def _write(folder: Path, path: str, content: bytes) -> None:
    place = folder / path
    if not place.resolve().is_relative_to(folder.resolve()):
        raise ExplorerError("A name leads out of the folder", path, "Leave this index: it was not made by a reader.")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
