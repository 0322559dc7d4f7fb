"""Research benchmarks: what Troth is compared with, and what is simulated. bench/README.md says how to run them."""
