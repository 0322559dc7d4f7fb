"""Which node of a group serves a request: PlanetServe's overlay forwarding (section 3.3, algorithm 2), and ours.

Pure decisions over frozen standings; time and chance are arguments. docs/explanation/forwarding.md says why
ours differs.
"""
