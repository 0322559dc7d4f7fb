"""Tabs of clients and with nodes: books, vouchers, claims, and the file that they are kept in."""
