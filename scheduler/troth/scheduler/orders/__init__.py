"""Orders: taken, served, drawn."""
