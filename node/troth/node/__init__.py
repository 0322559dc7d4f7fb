"""A node: it stakes, serves a slice of a model, checks others, and looks after what it is owed.

The process and its commands lie here; each part of its work has a folder. What a scheduler or a client needs to know
of a node belongs to ``troth.protocol``; only ``engine``, ``models`` and ``calibration`` may import torch.
"""
