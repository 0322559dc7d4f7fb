"""A whole network on one machine, for the demo, tests and benchmarks: real processes, commands and contracts.

No party of a real network imports it.
"""
