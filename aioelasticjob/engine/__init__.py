"""What acts: the tasks, sessions and writes that carry out what the core has decided."""
