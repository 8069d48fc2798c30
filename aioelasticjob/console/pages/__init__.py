"""The console's pages: each a function of a visit."""
