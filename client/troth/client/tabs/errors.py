"""Errors of tabs.

ClientError
├── StoreUnusable      the file of tabs cannot be read or written; nothing was sent
├── NoTab              there is no open tab that fits
├── TabShort           a tab does not cover what an order may cost; ``shortfall`` says how much is missing
└── TabBehind          the chain or the scheduler knows newer words of this tab than this machine
"""

from __future__ import annotations

from troth.client.errors import ClientError


class StoreUnusable(ClientError):
    """The file of tabs cannot be read or written."""


class NoTab(ClientError):
    """There is no open tab that fits."""


class TabShort(ClientError):
    """A tab does not cover what an order may cost; ``shortfall`` in the asset's smallest unit."""

    def __init__(self, what: str, value: object, remedy: str, shortfall: int = 0, tab: str = "") -> None:
        super().__init__(what, value, remedy)
        self.shortfall = shortfall
        self.tab = tab


class TabBehind(ClientError):
    """Newer words were signed on this tab than this machine knows, and its scheduler does not show them."""
