"""A page on this machine on which a browser's wallet (EIP-1193) signs what a command has planned, and nothing else."""
