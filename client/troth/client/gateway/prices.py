"""Costs as JSON: a number of ether for people and charts, and exact wei as text beside it."""

from __future__ import annotations

from decimal import Decimal

WEI = Decimal(10) ** 18


def ether(wei: int) -> float:
    """Ether as a JSON number; exact only up to a double's 15 digits, which is why wei goes beside it."""
    return float(Decimal(wei) / WEI)


def whole(amount: int, decimals: int) -> float:
    """An amount of any asset in whole ones, as ``ether``."""
    return float(Decimal(amount) / Decimal(10) ** decimals)
