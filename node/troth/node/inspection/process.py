"""The process that a configuration starts, asked over its own endpoint, and its operator by the keyfile alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from troth.chain.keystore import address_in
from troth.node.configuration import NodeConfiguration
from troth.node.errors import ConfigError
from troth.protocol.types import Address, Segment
from troth.transport.errors import OverlayError
from troth.transport.https import pinned_sync_client
from troth.transport.identity import load_identity

if TYPE_CHECKING:
    import httpx

NO_PROCESS = "no process answers"
"""How the reasons begin where the node does not run."""


def operator_of(configuration: NodeConfiguration) -> Address:
    """The operator's address from its keyfile, without the password."""
    address = address_in(configuration.operator_keystore)
    if address is None:
        raise ConfigError(
            "the operator's keyfile states no address",
            str(configuration.operator_keystore),
            "Use a keyfile with an address field.",
        )
    return address


def process_slice(configuration: NodeConfiguration) -> Segment | None:
    """The layers that the running process hosts, by its metrics; None if none answers."""
    import httpx
    from prometheus_client.parser import text_string_to_metric_families

    try:
        with _process(configuration) as client:
            families = text_string_to_metric_families(client.get("/metrics").text)
            found = {family.name: family.samples[0].value for family in families if family.samples}
            return Segment(int(found["troth_node_slice_first"]), int(found["troth_node_slice_end"]))
    except (httpx.HTTPError, OverlayError, KeyError, ValueError):
        return None


def _process(configuration: NodeConfiguration) -> httpx.Client:
    """A client of the process that this configuration starts."""
    identity = load_identity(configuration.tls_folder)
    host = f"[{configuration.own_host}]" if ":" in configuration.own_host else configuration.own_host
    return pinned_sync_client(f"https://{host}:{configuration.port}", identity.spki_sha256)


def process_state(configuration: NodeConfiguration) -> dict[str, Any]:
    """What /readyz of the running node says."""
    import httpx

    try:
        with _process(configuration) as client:
            answer: dict[str, Any] = client.get("/readyz").json()
            return answer
    except (httpx.HTTPError, OverlayError, ValueError) as error:
        # That nothing listens is the usual case, and needs no more words.
        more = "" if isinstance(error, httpx.ConnectError) else f": {type(error).__name__}"
        return {"ready": False, "reasons": [f"{NO_PROCESS} on port {configuration.port}{more}"]}
