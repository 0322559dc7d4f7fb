"""Placement and pipelines in the running scheduler: what nodes report, who hosts what.

docs/explanation/placement.md explains it.
"""
