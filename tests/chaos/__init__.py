"""Chaos: workers, network and ensemble are disturbed on purpose, and what happened is judged."""
