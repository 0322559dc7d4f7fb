"""How a node gets its files, an address that others reach, and a place in the registry, and how it leaves."""
