"""Cells: the fixed-size unit on a link, its layers and what travels inside (docs/reference/overlay.md)."""
