"""What ``init`` was told of a market, checked before anything is written."""

from __future__ import annotations

from pathlib import Path

from troth.scheduler.errors import ConfigurationInvalid
from troth.scheduler.founding import Wishes
from troth.scheduler.market.initialisation import MarketWishes, initialise_market

LEAST_SHARE = 4


def init_market(
    folder: Path, wishes: Wishes, place: tuple[str, str], money: tuple[str, str, str], password_file: Path | None
) -> dict[str, object]:
    """Write a market's configuration; ``place`` is factory and Bank, ``money`` prices, deposit and least as text."""
    prices, deposit, least = money
    parts = tuple(part.strip() for part in prices.split(","))
    if len(parts) != 3 or not all(part.isascii() and part.isdecimal() for part in parts):
        remedy = "Say --prices prompt,cached,written in the asset's smallest unit per 10^9 positions."
        raise ConfigurationInvalid("A market's scheduler has three prices", prices, remedy)
    if not (deposit.isascii() and deposit.isdecimal()):
        raise ConfigurationInvalid("--deposit is an amount in the asset's smallest unit", deposit, "Say a number.")
    least = least or str(max(int(deposit) // LEAST_SHARE, 1))
    asked = MarketWishes(wishes, place[0], place[1], (parts[0], parts[1], parts[2]), deposit, least)
    return initialise_market(folder, asked, password_file)
