"""Who uses the console: accounts, passwords, sessions, and what keeps others from guessing a password."""
