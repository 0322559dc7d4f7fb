"""Who hosts which layers, and who serves a request: pure functions, without sockets and without torch.

What asks machines and acts on the answer belongs to ``troth.scheduler.pool`` and ``troth.node.group``.
"""
