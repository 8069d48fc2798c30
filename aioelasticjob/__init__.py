"""Distributed cron for asyncio: sharded jobs, elastic re-sharding and failover over ZooKeeper."""
