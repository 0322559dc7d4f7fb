"""Which relays a client's circuits go through, its lasting guards, and circuits kept warm.

docs/explanation/paths.md explains the choice.
"""
