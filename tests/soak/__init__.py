"""A soak: everything works together for a long time, and is judged."""
