"""What an audit is made from: events, transactions and headers, read from a chain node or from a bundle, and folded."""
