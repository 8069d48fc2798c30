"""Coordination and running on a tree that is a dictionary, step by step from a seed."""
