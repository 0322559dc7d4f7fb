"""A relay: the process behind `troth relay start` (docs/overlay.md)."""
