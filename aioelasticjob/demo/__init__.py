"""The demonstration: one job over several processes, doing real work while one of them is killed."""
