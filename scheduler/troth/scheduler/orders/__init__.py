"""Orders on tabs: taken, served, drawn."""
