"""What users of the package write: handlers of jobs, and the values that handlers are given."""
