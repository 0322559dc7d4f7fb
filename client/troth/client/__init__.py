"""The client: a wallet, signed orders, chat with checked answers, and receipts that survive a crash."""
