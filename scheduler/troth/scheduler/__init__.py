"""A scheduler: it takes orders, draws who serves, relays states, has answers checked, and pays nodes.

The process and its commands lie here; each part of its work has a folder. It computes no model and knows no torch; who
hosts what is decided in ``troth.routing``.
"""
