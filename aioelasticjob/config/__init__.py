"""The settings of jobs: their types and bounds, and what is said about mistakes in them."""
