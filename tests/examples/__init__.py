"""Tests of the examples and of the demonstration they share their code with."""
