"""The one place that talks to an Ethereum node and to key files; everything it passes on is a typed value.

What events mean and which calls are right belongs to ``troth.protocol``.
"""
