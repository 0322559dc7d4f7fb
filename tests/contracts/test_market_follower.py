"""A deployment is followed as one: its state at each block, through a reorganisation and a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.tabs_stage import DEPOSIT, PARAMETERS, TabsStage, following, tabs_stage

from troth.chain.market import find_place
from troth.chain.market_follower import MarketFollower
from troth.protocol.market import messages
from troth.protocol.market.errors import InvalidOrder
from troth.protocol.market.parts import Part
from troth.protocol.market.types import PotKind, Role
from troth.protocol.market.views import parameters_of, rules_in, scheduler_of
from troth.protocol.types import Address, Hash32

pytestmark = [pytest.mark.chain, pytest.mark.slow]


async def test_what_stands_on_chain_is_what_the_follower_says(anvil: Any, tmp_path: Path) -> None:
    async with tabs_stage(anvil, nodes=3) as stage:
        async with following(stage) as follower:
            state = follower.state
            assert parameters_of(state) == PARAMETERS
            assert rules_in(state, stage.class_id).layers == stage.model.layers
            assert scheduler_of(state, stage.scheduler.address).role is Role.SCHEDULER
            assert state.tab_state(messages.tab_id(stage.client_tab)).balance == DEPOSIT
            with pytest.raises(InvalidOrder):
                rules_in(state, Hash32(b"\7" * 32))
            with pytest.raises(InvalidOrder):
                scheduler_of(state, Address(stage.nodes[0].address))
        place = await find_place(anvil.url, stage.market.place.factory)
        assert place.contracts == stage.market.contracts
        assert place.block >= stage.market.place.block
        await survives_restart_and_reorganisation(stage, tmp_path / "events.sqlite")


async def survives_restart_and_reorganisation(stage: TabsStage, file: Path) -> None:
    tab = messages.tab_id(stage.client_tab)

    def balance(follower: MarketFollower) -> int:
        return follower.state.pot(PotKind.TAB, tab)

    first = MarketFollower(stage.market, file)
    await first.catch_up()
    before = (first.state.held(), first.block)
    await first.close()
    second = MarketFollower(stage.market, file)
    assert (second.state.held(), second.block) == before
    snapshot = stage.anvil.rpc("evm_snapshot")
    await stage.send(stage.client, Part.BANK, "topUp", tab, 5, value=5)
    await second.catch_up()
    assert balance(second) == DEPOSIT + 5
    stage.anvil.rpc("evm_revert", snapshot)
    await stage.send(stage.client, Part.BANK, "topUp", tab, 7, value=7)
    stage.anvil.mine(2)
    await second.catch_up()
    assert balance(second) == DEPOSIT + 7
    await second.close()
