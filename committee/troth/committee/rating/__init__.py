"""Reputation: what a member asks of nodes in an epoch, how members agree on what it was worth, and the contract."""
