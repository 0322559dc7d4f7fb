"""Pages to look at a deployment: what its contracts said, what schedulers served, what an audit of both found.

One process reads: it follows the chain, fetches logs, runs the audit's checks and writes an SQLite index. Another one
serves pages from that index alone; it asks nobody anything and holds no key. No page, file or picture puts an account
that pays beside a node that served.
"""
