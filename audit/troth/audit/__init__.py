"""Re-checking a Troth contract from outside: fold its events, recompute every decision, name who was wrong."""
