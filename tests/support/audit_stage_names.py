"""What ``audit_stage`` plays, in the order in which the tasks are opened."""

TASKS = ("cooperative", "merged", "own calls", "exact", "rejected", "silent", "expired", "aborted", "overdue")
