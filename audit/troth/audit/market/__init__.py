"""Audits of the market: a deployment's contracts, a scheduler's log, and single receipts. Checks M1 to M20."""
