"""What the console keeps: its database, and the audit log."""
