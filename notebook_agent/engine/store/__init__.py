"""Stores: the append-only log of messages, records, tool executions and snapshots."""
