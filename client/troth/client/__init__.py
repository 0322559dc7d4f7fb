"""The client: tabs, signed orders, checked answers, and receipts that survive a crash.

Nothing here holds the wallet longer than a command for tabs needs it, and nothing that a scheduler sends is believed
before it was checked.
"""
