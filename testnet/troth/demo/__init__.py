"""The demo: the acts that ``troth demo`` plays on a network of ``troth.testnet``, and what it prints of them.

An act asserts what it shows: one that did not happen ends the demo with an error.
"""
