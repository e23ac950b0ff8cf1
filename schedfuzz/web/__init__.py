"""The dashboard: what the database knows, as pages and as JSON."""
