"""The embedded server beside the real one: the same bytes to both, the same bytes back."""
