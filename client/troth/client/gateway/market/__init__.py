"""The gateway on tabs: the same routes and shapes, over questions that tabs pay for."""
