"""The running scheduler of a market: configuration, chain, HTTP, commands."""
