"""Circuits: links between relays, the set-up handshake and the client's end (docs/reference/overlay.md)."""
