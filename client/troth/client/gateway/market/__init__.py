"""The gateway: the same routes and shapes, over questions that tabs pay for."""
