"""Observers: they read the events of jobs, and keep or show them.  Nothing in this package can delay a job."""
