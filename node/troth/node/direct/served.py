"""A node's word that it gave this answer; see `types.Served`."""

from __future__ import annotations

from collections.abc import Sequence

from troth.protocol.errors import ProtocolError
from troth.protocol.request import output_hash
from troth.protocol.typed_data import Domain, recover
from troth.protocol.types import Address, Hash32, Served


def served(task_id: Hash32, salt: Hash32, tokens: Sequence[int]) -> Served:
    """What is signed of an answer."""
    return Served(task_id, output_hash(salt, tokens))


def is_signed_by(node: Address, statement: Served, signature: bytes, domain: Domain) -> bool:
    """Whether it is this node's signature; a malformed one is nobody's."""
    try:
        return recover(statement, domain, signature) == node
    except ProtocolError:
        return False
