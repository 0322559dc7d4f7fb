"""Orders on tabs: terms, one question from order to acknowledgement, checks, receipts."""
