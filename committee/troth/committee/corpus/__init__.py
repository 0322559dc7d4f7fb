"""Of which texts challenges are made, so that no node tells them from users' prompts, and how long a corpus lasts."""
