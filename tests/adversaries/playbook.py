"""Every script of a row, by its name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from adversaries import audit_scripts, claim_scripts, order_scripts, party_scripts, scripts, tab_scripts, word_scripts
from adversaries.trial import Trial

SCRIPTS: dict[str, Callable[[Trial], Awaitable[None]]] = {
    **scripts.SCRIPTS,
    **order_scripts.SCRIPTS,
    **word_scripts.SCRIPTS,
    **tab_scripts.SCRIPTS,
    **claim_scripts.SCRIPTS,
    **party_scripts.SCRIPTS,
    **audit_scripts.SCRIPTS,
}
