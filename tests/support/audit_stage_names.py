"""What ``audit_stage`` plays, in the order in which the tasks are opened."""

FIRST = ("cooperative", "merged", "own calls", "exact", "rejected", "silent", "expired", "aborted")
REVIEWED = ("overturned", "refunded", "dispute lost", "escalated", "unreviewed", "waiting")
TASKS = (*FIRST, *REVIEWED, "overdue")
