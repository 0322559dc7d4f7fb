"""What this node is owed on its tabs, and how it gets it: books, vouchers, claims."""
