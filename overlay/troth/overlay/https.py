"""HTTPS with the same pin as the channel, for plain JSON and streams (a client's calls to its scheduler)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from troth.overlay.errors import ChannelTimeout, ChannelUnavailable
from troth.overlay.tls import as_wrong_tls_key, pinned_context

KEPT_SECONDS = 2.0
"""For how long an idle connection is used again: well under what servers wait before they close one
(`server.IDLE_SECONDS`). With equal times, a request now and then meets the closing of the connection it is sent on."""


def pinned_client(endpoint: str, tls_key_hash: bytes, timeout: float = 30.0) -> httpx.AsyncClient:
    """An asynchronous client that talks to `endpoint` and nobody else; wrap calls in `naming_errors`."""
    return httpx.AsyncClient(
        base_url=_address(endpoint),
        verify=pinned_context(tls_key_hash),
        timeout=timeout,
        limits=httpx.Limits(keepalive_expiry=KEPT_SECONDS),
        trust_env=False,
        follow_redirects=False,
    )


def pinned_sync_client(endpoint: str, tls_key_hash: bytes, timeout: float = 30.0) -> httpx.Client:
    """The same for code that is not asynchronous."""
    return httpx.Client(
        base_url=_address(endpoint),
        verify=pinned_context(tls_key_hash),
        timeout=timeout,
        limits=httpx.Limits(keepalive_expiry=KEPT_SECONDS),
        trust_env=False,
        follow_redirects=False,
    )


def _address(endpoint: str) -> httpx.URL:
    """An endpoint comes from a stranger's registration; raises ChannelUnavailable where it cannot be one."""
    try:
        address = httpx.URL(endpoint)
        if address.scheme != "https":
            # Without TLS there is no pin: it could be anything that listens near whoever is made to ask.
            raise ChannelUnavailable("An endpoint starts with https://", endpoint, "Correct the registration.")
        if address.port is not None and not 0 < address.port < 1 << 16:
            raise ChannelUnavailable(f"{endpoint} has an impossible port", address.port)
        address.host.encode("idna")
    except (httpx.InvalidURL, ValueError) as error:
        raise ChannelUnavailable(f"{endpoint} is no address", error) from error
    return address


@contextmanager
def naming_errors(endpoint: str) -> Iterator[None]:
    """Turn httpx's transport errors into WrongTlsKey, ChannelTimeout or ChannelUnavailable."""
    try:
        yield
    except httpx.TimeoutException as error:
        raise ChannelTimeout(f"{endpoint} did not answer in time", error) from error
    except httpx.TransportError as error:
        wrong_key = as_wrong_tls_key(error, endpoint)
        if wrong_key is not None:
            raise wrong_key from error
        raise ChannelUnavailable(f"{endpoint} cannot be reached", error) from error
