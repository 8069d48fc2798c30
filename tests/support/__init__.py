"""Real servers, proxies and processes for tests, each a context manager that leaves nothing behind."""
