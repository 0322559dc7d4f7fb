"""The signed directory: who relays and who serves, which list to believe, and which paths to choose from it."""
