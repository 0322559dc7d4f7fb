"""Direct mode: requests enter at a node that hosts the whole model, found in the directory and on the chain."""
