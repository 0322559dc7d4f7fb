"""The client's guards, for one command or gateway."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from troth.client.home import Home
from troth.client.locking import exclusive
from troth.overlay.paths.guards import Guards


@contextmanager
def guards_of(home: Home) -> Iterator[Guards]:
    """The same guards for every process of this home.

    One process keeps the file. Another one at the same time, a command beside the gateway, works with a copy: it meets
    the same relays, and what it learns of them is not kept. Raises GuardsUnusable.
    """
    home.create()
    with exclusive(home.guards) as held, tempfile.TemporaryDirectory(prefix="troth-guards-") as folder:
        path = home.guards
        if not held:
            path = Path(folder) / home.guards.name
            if home.guards.exists():
                shutil.copy2(home.guards, path)
        yield Guards(path)
