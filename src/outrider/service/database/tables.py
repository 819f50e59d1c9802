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
    Integer,
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
    # The newest cursor of the account's event log, and the one below its oldest event.
    Column("event_cursor", BigInteger, nullable=False, server_default="0"),
    Column("event_floor", BigInteger, nullable=False, server_default="0"),
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
    # Null once the token is revoked: the machine cannot connect until it is enrolled again.
    Column("token_hash", LargeBinary(32), nullable=True, unique=True),
    Column("created_at", BigInteger, nullable=False),
    # True from the welcome until the end of the grace period. It survives a crash of the
    # service, so that a machine that does not come back is still reported as offline.
    Column("connected", Boolean, nullable=False),
    Column("connected_at", BigInteger, nullable=True),
    Column("last_seen_at", BigInteger, nullable=True),
    # The newest contract.frames.Snapshot as JSON.
    Column("snapshot", LargeBinary, nullable=True),
    # The number of the newest event that was stored for this machine.
    Column("event_seq", BigInteger, nullable=False, server_default="0"),
    # The node that has its socket, or waits for the end of its grace period.
    Column("node", String(12), nullable=True),
    # Incremented with each connection: the higher number is the newer of two sockets.
    Column("connection", BigInteger, nullable=False, server_default="0"),
    Index("ix_machines_connected", "connected"),
)

# The sessions of machines, running and ended. A machine chooses their ids, so they are unique on it
# only.
session_history = Table(
    "session_history",
    metadata,
    Column("machine_id", ForeignKey(machines.c.id, ondelete="CASCADE"), primary_key=True),
    Column("id", String(64), primary_key=True),
    Column("account_id", ForeignKey(accounts.c.id, ondelete="CASCADE"), nullable=False),
    # The machine's times, but `ended_at` is the service's while `end_reason` is null.
    Column("created_at", BigInteger, nullable=False),
    Column("last_activity_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger, nullable=True, index=True),
    Column("end_reason", String(20), nullable=True),
    # Title, directory and type in lower case, for searches.
    Column("search", Text, nullable=False),
    # The contract.resources.Session as JSON: the last state, or that of the last change of a title.
    Column("data", LargeBinary, nullable=False),
    Index("ix_session_history_account_id_created_at_id", "account_id", "created_at", "id"),
)

# The running nodes. Each increments its `beats`; the others declare it dead when it stops.
nodes = Table(
    "nodes",
    metadata,
    Column("id", String(12), primary_key=True),
    Column("beats", BigInteger, nullable=False),
)

enrollment_codes = Table(
    "enrolment_codes",
    metadata,
    Column("hash", LargeBinary(32), primary_key=True),
    Column("account_id", ForeignKey(accounts.c.id, ondelete="CASCADE"), nullable=False),
    Column("nickname", Text, nullable=True),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
)

sessions = Table(
    "sessions",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("user_id", ForeignKey(users.c.id, ondelete="CASCADE"), nullable=False, index=True),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False, index=True),
    # Null if a node of an older release started it.
    Column("last_seen_at", BigInteger, nullable=True),
    Column("address", String(64), nullable=True),
    Column("user_agent", String(300), nullable=True),
    # Password attempts since the last correct one; see `accounts.dashboard_sessions`.
    Column("failures", Integer, nullable=False, server_default="0"),
)

# The addresses (IPv6: the /64) that a user has logged in from: the limit on logins to an account
# does not hold for them.
known_addresses = Table(
    "known_addresses",
    metadata,
    Column("user_id", ForeignKey(users.c.id, ondelete="CASCADE"), primary_key=True),
    Column("address", String(64), primary_key=True),
    Column("seen_at", BigInteger, nullable=False),
)

# One link at a time for each user, which sets the password without the old one.
password_resets = Table(
    "password_resets",
    metadata,
    Column("user_id", ForeignKey(users.c.id, ondelete="CASCADE"), primary_key=True),
    Column("hash", LargeBinary(32), nullable=False, unique=True),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
)

# The accounts that `outrider admin` has changed or deleted: nodes poll it to drop their caches.
# No foreign key, since a row outlives its account.
account_changes = Table(
    "account_changes",
    metadata,
    Column("account_id", String(40), primary_key=True),
    Column("changed_at", BigInteger, nullable=False),
)

device_codes = Table(
    "device_codes",
    metadata,
    Column("hash", LargeBinary(32), primary_key=True),
    Column("user_code_hash", LargeBinary(32), nullable=False, unique=True),
    # The contract.enrollment.MachineInfo of the requesting machine, as JSON.
    Column("machine", LargeBinary, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False, index=True),
    Column("polled_at", BigInteger, nullable=False),
    # Set once a user has approved it; `denied` is set instead if a user has denied it.
    Column("account_id", ForeignKey(accounts.c.id, ondelete="CASCADE"), nullable=True),
    Column("denied", Boolean, nullable=False),
    # The address of the request; null if a node of an older release served it.
    Column("address", String(64), nullable=True),
)

usage = Table(
    "usage",
    metadata,
    Column("account_id", ForeignKey(accounts.c.id, ondelete="CASCADE"), primary_key=True),
    Column("month", String(7), primary_key=True),
    Column("calls", BigInteger, nullable=False),
)

audit = Table(
    "audit",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("at", BigInteger, nullable=False, index=True),
    # No foreign keys: a record outlives what it refers to.
    Column("account_id", String(40), nullable=True),
    Column("principal", String(40), nullable=True),
    Column("action", String(100), nullable=False),
    Column("target", String(300), nullable=True),
    Column("outcome", Integer, nullable=False),
    Column("address", String(64), nullable=False),
    Column("request_id", String(40), nullable=False),
    Index("ix_audit_account_id_id", "account_id", "id"),
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("principal", String(40), primary_key=True),
    Column("key", String(255), primary_key=True),
    # SHA-256 of the method, the path and the body.
    Column("fingerprint", LargeBinary(32), nullable=False),
    Column("created_at", BigInteger, nullable=False, index=True),
    # Null while the request is in progress.
    Column("status", Integer, nullable=True),
    # The body of the response, encrypted.
    Column("response", LargeBinary, nullable=True),
)

webhooks = Table(
    "webhooks",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("account_id", ForeignKey(accounts.c.id, ondelete="CASCADE"), nullable=False, index=True),
    Column("url", Text, nullable=False),
    Column("events", JSON, nullable=False),
    Column("active", Boolean, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("secret", LargeBinary, nullable=False),  # encrypted
    # The secret before the last rotation, encrypted, and the time until which it still signs.
    Column("old_secret", LargeBinary, nullable=True),
    Column("old_secret_until", BigInteger, nullable=True),
    Column("disabled_reason", Text, nullable=True),
    # When the first delivery failed after the last success; null after a success.
    Column("failing_since", BigInteger, nullable=True),
    Column("last_delivery", JSON(none_as_null=True), nullable=True),
)

events = Table(
    "events",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("account_id", ForeignKey(accounts.c.id, ondelete="CASCADE"), nullable=False),
    Column("name", String(40), nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    # Its place in the account's log; null outside of it: tests, events that a node of an older
    # release stored, and those older than the log that still have deliveries.
    Column("cursor", BigInteger, nullable=True),
)
# Partial: the rows with a cursor, and those without one.
Index("ix_events_account_id_cursor", events.c.account_id, events.c.cursor, unique=True)
Index("ix_events_created_at", events.c.created_at)

# The history of deliveries, and their queue: a pending row is due at next_attempt_at, and
# claimed by a node until claimed_until.
deliveries = Table(
    "deliveries",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("webhook_id", ForeignKey(webhooks.c.id, ondelete="CASCADE"), nullable=False),
    Column("event_id", ForeignKey(events.c.id), nullable=False, index=True),
    Column("event", String(40), nullable=False),
    Column("status", String(10), nullable=False),
    Column("attempt", Integer, nullable=False),
    # The contract.webhooks.Attempt list, as JSON, oldest first.
    Column("attempts", LargeBinary, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("completed_at", BigInteger, nullable=True),
    Column("next_attempt_at", BigInteger, nullable=True),
    Column("claimed_until", BigInteger, nullable=False),
    Index("ix_deliveries_webhook_id_id", "webhook_id", "id"),
)
# Partial: the pending rows.
Index("ix_deliveries_due", deliveries.c.next_attempt_at)
Index("ix_deliveries_completed_at", deliveries.c.completed_at)
