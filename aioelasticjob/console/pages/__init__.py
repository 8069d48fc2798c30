"""The console's pages: each a function of a request."""
