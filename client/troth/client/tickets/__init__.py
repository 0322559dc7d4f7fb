"""Tickets: bought with the wallet, signed blind by members, spent with schedulers that cannot tell whose they were."""
