"""Re-checking a deployment from outside: fold its events, recompute every decision, name who was wrong.

Checks are pure functions over what was read; nothing here signs, but a watcher that was told to act.
"""
