"""Sessions: a client and a destination over several circuits, sealed end to end (docs/reference/sessions.md)."""
