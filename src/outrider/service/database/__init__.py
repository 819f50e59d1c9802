"""The database: `engine` (connections, transactions, schema), `tables` and their `migrations`.

One schema serves SQLite and PostgreSQL. The statements are in the `store` of each subject; `bulk`
and `batches` are for many rows and many callers at once.
"""
