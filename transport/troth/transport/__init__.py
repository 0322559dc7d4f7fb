"""How messages travel between parties that know each other: pinned TLS, signed envelopes, the channel.

What the messages say belongs to ``troth.protocol``; what hides who sends them, to ``troth.overlay``.
"""
