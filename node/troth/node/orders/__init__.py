"""Serving orders: inference, checks, and what was signed about them."""
