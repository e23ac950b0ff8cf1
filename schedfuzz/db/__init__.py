"""Remembering: the store of hunts, scenarios, findings and incidents, on SQLite or PostgreSQL."""
