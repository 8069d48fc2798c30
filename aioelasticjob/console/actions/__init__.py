"""What may be done to jobs: the actions on one job, and an action on many jobs."""
