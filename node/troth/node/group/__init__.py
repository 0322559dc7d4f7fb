"""The group of nodes that host one whole model: who is in it, what each holds, and how loaded it is.

`group.Group` is what the rest of the node uses; docs/explanation/forwarding.md says what is promised.
"""
