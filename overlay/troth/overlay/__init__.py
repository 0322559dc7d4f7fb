"""The anonymous overlay: cells, circuits, relays, their directory, paths, S-IDA cloves and sessions over them.

It carries requests whose meaning it does not know; nothing here names an order, a tab or a price.
"""
