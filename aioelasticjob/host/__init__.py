"""This process, and code that is not ours: event loops, signals, plugins, users' functions, child processes."""
