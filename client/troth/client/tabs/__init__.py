"""Tabs: payment channels to schedulers, their keys, and every word that was signed on them."""
