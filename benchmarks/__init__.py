"""What toolnexus costs, beside a hand-written loop on the same HTTP client. `python -m benchmarks` prints the table."""
