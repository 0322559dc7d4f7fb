"""Checks that clients draw, and what is summoned on chain."""
