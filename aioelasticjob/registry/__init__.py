"""ZooKeeper as values and streams: a session, trees that follow it, and transactions bound to it."""
