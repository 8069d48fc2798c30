"""What a simulated cluster's history must keep: the promises, one judge each."""
