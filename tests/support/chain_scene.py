"""The scene of the unit tests over a real chain: a scheduler on tabs whose nodes are toys in the same process."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from support.tab_scene import TabScene
from support.tabs_stage import TabsStage
from support.toy_peers import ToyPeers
from support.toy_tab_node import ToyTabNode

from troth.protocol.market import messages, tabs
from troth.scheduler.ledger import MarketLedger


class ChainScene(TabScene):
    """The scene of the unit tests over a real chain."""

    def __init__(self, folder: Path, stage: TabsStage, follower: Any, kind: type[ToyTabNode] = ToyTabNode) -> None:
        self.folder = folder
        self.stage = stage
        self.ends = (2,)
        self.domain = stage.market.domain
        self.scheduler_key, self.tab_key, self.vrf_secret = (
            stage.scheduler.secret,
            stage.tab_key.secret,
            stage.vrf_secret,
        )
        self.client_tab = stage.client_tab
        self.definition = stage.execution_class
        self.class_id = stage.class_id
        self.ledger: Any = MarketLedger(stage.market, follower, stage.scheduler)
        self.nodes = {}
        for key in stage.nodes:
            node = kind(key.secret, self.domain, self.chain)
            self.nodes[node.address] = node
        self.peers = ToyPeers(self.nodes)
        self.payer = tabs.PayerBook(messages.tab_id(self.client_tab))
        self.database = None
        self.now = int(time.time())
