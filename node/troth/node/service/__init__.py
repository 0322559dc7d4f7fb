"""The service of a node: one handler per message of the channel, the same for inference and for verification."""
