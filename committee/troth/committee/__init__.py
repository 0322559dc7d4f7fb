"""A member of the directory's committee: the process behind `troth committee start` (docs/reference/directory.md)."""
