"""The database: its tables, the statements that use them, and their migrations.

One schema serves SQLite and PostgreSQL. Each module holds the statements about one thing.
"""
