"""A relay: the process behind `troth relay start` (docs/reference/overlay.md)."""
