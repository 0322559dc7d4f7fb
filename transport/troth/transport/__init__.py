"""How messages travel between parties that know each other: pinned TLS, signed envelopes, the channel."""
