"""What it costs and how fast it is: ``python -m benchmarks`` measures on this machine and prints a table."""
