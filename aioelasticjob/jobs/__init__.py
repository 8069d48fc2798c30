"""What a user writes: handlers, and what they are told."""
