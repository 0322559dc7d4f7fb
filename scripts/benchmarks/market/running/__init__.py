"""`scripts/bench market`: figures of a running network of real processes; see README.md.

``toy_network`` sets up a chain, a scheduler and nodes over a toy model; ``load`` is their client. ``throughput``,
``gas_a_task`` and ``auditing`` are measured on it; ``language_network`` and what follows from it on SmolLM2.
"""
