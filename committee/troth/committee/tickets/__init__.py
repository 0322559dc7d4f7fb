"""Tickets: a member's part in the keys of an epoch, and what clients and members ask it for."""
