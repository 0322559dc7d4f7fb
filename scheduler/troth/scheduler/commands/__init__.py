"""What the operator of a scheduler runs: before there is a process, and beside it."""
