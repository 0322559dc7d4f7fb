"""Placement and chains in the running scheduler: what nodes report, who hosts what. See docs/placement.md."""
