"""A node whose model is still loading: its group is told to come again, and strangers that they are refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from troth.node.direct.assembly import Direct
from troth.node.errors import NodeBusy
from troth.protocol.market.types import NO_ADDRESS
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, Hash32
from troth.transport.identity import Operator

CLASS, ANOTHER = Hash32(b"c" * 32), Hash32(b"d" * 32)
PEER, OTHER, STRANGER = (Address(f"0x{number:040x}") for number in (1, 2, 3))


async def test_peers_are_asked_to_wait_while_a_model_loads_and_strangers_are_refused() -> None:
    parties: Any = {PEER: SimpleNamespace(execution_class=CLASS), OTHER: SimpleNamespace(execution_class=ANOTHER)}
    configuration: Any = SimpleNamespace(overlay=None, tunnel=None, execution_class=CLASS)
    operator, state = Operator(b"\x01" * 32, Domain(31337, NO_ADDRESS)), SimpleNamespace(parties=parties)
    direct = Direct(configuration, operator, CollectorRegistry(), list, lambda: state)  # type: ignore[arg-type,return-value]
    assert [direct._authorise(one) for one in (PEER, OTHER, STRANGER)] == [True, False, False]
    nothing: Any = None
    with pytest.raises(NodeBusy, match="still loading"):
        await direct._handle(PEER, nothing, nothing)
    # Once it serves without a group, for a part of a model, nobody has.
    direct._loading = False
    assert not direct._authorise(PEER)
