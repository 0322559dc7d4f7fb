"""The log of what was served, for auditors."""
