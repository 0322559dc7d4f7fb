"""Orders: terms, one question from order to acknowledgement, checks, receipts."""
