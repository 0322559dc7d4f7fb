"""The anonymous overlay: cells, circuits, relays, their directory, paths, S-IDA cloves and sessions over them."""
