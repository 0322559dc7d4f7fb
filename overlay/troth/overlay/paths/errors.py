"""What can go wrong with paths.

OverlayError
 └─ PathsError
     ├─ NoDisjointPaths   the list has no such choice of relays
     ├─ GuardsUnusable    the file of guards cannot be read, believed or written
     └─ NoCircuits        not enough circuits in time
"""

from __future__ import annotations

from typing import ClassVar

from troth.transport.errors import OverlayError


class PathsError(OverlayError):
    """Base of this package's errors."""

    code: ClassVar[str] = "paths"


class NoDisjointPaths(PathsError):
    """No choice of relays shares neither relay nor operator nor network."""

    code = "no_disjoint_paths"


class GuardsUnusable(PathsError):
    """The guards on disk cannot be used; new ones are never chosen in silence."""

    code = "guards_unusable"


class NoCircuits(PathsError):
    """Fewer live circuits than were asked for, when the time was over or the pool closed."""

    code = "no_circuits"
