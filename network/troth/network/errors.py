"""Errors of the network package. Each says what happened, with which value, and what to do about it.

NetworkError
 ├─ NetworkFileInvalid   network.json cannot be used as it is
 ├─ NetworkUnknown       no file has this name
 ├─ WrongNetwork         the chain node is not of this network, or options name another one
 ├─ ChainUnfit           the chain lacks what a network needs
 └─ CreationRefused      nothing is created, or nothing more, with these options
"""

from __future__ import annotations

from troth.protocol.errors import TrothError


class NetworkError(TrothError):
    """Base of the errors of this package."""


class NetworkFileInvalid(NetworkError):
    """The file of a network is unreadable, of another version, or does not fit together."""

    exit_code = 2


class NetworkUnknown(NetworkError):
    """No network is kept under this name."""

    exit_code = 2


class WrongNetwork(NetworkError):
    """The chain node is on another chain than the network, or an option names another deployment."""


class ChainUnfit(NetworkError):
    """The chain lacks something without which no network can work."""


class CreationRefused(NetworkError):
    """A network is not created with these options, or not carried on."""
