"""Direct mode at a node that hosts the whole model: the entry of clients' requests, and tokens without a detour.

docs/explanation/direct.md says who sees what, and what each party could do.
"""
