"""A node in its schedulers' pools: what it reports, what it may be told to host, how it joins.

docs/explanation/placement.md explains why.
"""
