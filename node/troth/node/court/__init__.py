"""The court on a node: it judges where it is drawn, defends what it signed, and brings what it rejected."""
