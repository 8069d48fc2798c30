"""Breaks one thing after another on real processes, and measures after how many seconds each surface says so."""
