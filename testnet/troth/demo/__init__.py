"""A whole Troth network on one machine: a chain, an overlay, two schedulers, ten nodes, clients, an auditor.

`market_network` builds and runs it, `market_play` plays the acts on it, `command` is `troth demo`.
"""
