"""The database: `engine` (connections, transactions, schema), `tables` and their `migrations`.

One schema serves SQLite and PostgreSQL. The statements are in the `store` of each subject;
`transaction` runs them to their end, and `batches` is for many writers at once.
"""
