"""What to write to the registry, decided from one view of it."""
