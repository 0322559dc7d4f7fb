"""Serving orders on tabs: inference, checks, and what was signed about them."""
