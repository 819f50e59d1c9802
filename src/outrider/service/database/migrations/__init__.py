"""The history of the schema, kept by Alembic."""
