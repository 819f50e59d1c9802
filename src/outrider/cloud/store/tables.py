"""The tables. A change here needs a migration in `migrations/versions/`.

Times are epoch milliseconds. Hashes are the SHA-256 of a secret that only its owner has.
"""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

accounts = Table(
    "accounts",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("plan", String(20), nullable=False),
    Column("created_at", BigInteger, nullable=False),
)

users = Table(
    "users",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("account_id", ForeignKey(accounts.c.id, ondelete="CASCADE"), nullable=False, index=True),
    Column("email", String(320), nullable=False, unique=True),
    Column("password_hash", Text, nullable=True),
    Column("created_at", BigInteger, nullable=False),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("account_id", ForeignKey(accounts.c.id, ondelete="CASCADE"), nullable=False, index=True),
    Column("name", Text, nullable=False),
    Column("prefix", String(16), nullable=False),
    Column("hash", LargeBinary(32), nullable=False, unique=True),
    Column("scopes", JSON, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=True),
    Column("revoked_at", BigInteger, nullable=True),
    Column("last_used_at", BigInteger, nullable=True),
)

machines = Table(
    "machines",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("account_id", ForeignKey(accounts.c.id, ondelete="CASCADE"), nullable=False, index=True),
    Column("nickname", Text, nullable=False),
    Column("hostname", Text, nullable=False),
    Column("platform", String(40), nullable=False),
    Column("version", String(40), nullable=False),
    # Null once the token is revoked: nothing opens this machine until it is enrolled again.
    Column("token_hash", LargeBinary(32), nullable=True, unique=True),
    Column("created_at", BigInteger, nullable=False),
    # True from the welcome until the grace period is over: what survives a crash of the
    # service, so that a machine which stays away after it is still found to be gone.
    Column("connected", Boolean, nullable=False),
    Column("connected_at", BigInteger, nullable=True),
    Column("last_seen_at", BigInteger, nullable=True),
    # The newest contract.frames.Snapshot as JSON.
    Column("snapshot", LargeBinary, nullable=True),
    Index("ix_machines_connected", "connected"),
)

enrolment_codes = Table(
    "enrolment_codes",
    metadata,
    Column("hash", LargeBinary(32), primary_key=True),
    Column("account_id", ForeignKey(accounts.c.id, ondelete="CASCADE"), nullable=False),
    Column("nickname", Text, nullable=True),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
)
