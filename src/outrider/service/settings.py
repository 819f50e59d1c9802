"""The operator's settings: environment variables with the prefix `OUTRIDER_`."""

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from outrider.service.http.hosts import host_name, is_loopback

LOCAL_ACCOUNT: Final = "local.json"
"""The file of `outrider up` in the data directory: its account, password and key."""

Seconds = Annotated[float, Field(gt=0)]
Positive = Annotated[int, Field(gt=0)]


class Settings(BaseSettings):
    """The service's settings and their defaults. docs/settings.md describes each of them."""

    model_config = SettingsConfigDict(env_prefix="OUTRIDER_", frozen=True, extra="ignore")

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8400
    metrics_listen: str | None = None
    metrics_token: str | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    public_url: str | None = None
    base_path: str = ""
    allowed_hosts: Annotated[list[str], NoDecode] = Field(default=[])
    data_dir: Path = Path("~/.local/share/outrider")
    database_url: str | None = None
    redis_url: str | None = None
    secret_key: str | None = None
    rate_limit_key: Positive = 120
    rate_limit_session: Positive = 600
    rate_limit_ip: Positive = 60
    rate_limit_auth: Positive = 10
    rate_limit_login: Positive = 30
    default_plan: Literal["free", "pro", "team", "enterprise"] = "enterprise"
    command_timeout: Seconds = 60
    grace_period: Annotated[float, Field(ge=0)] = 30
    history_days: Seconds = 90
    node_timeout: Seconds = 15
    drain_delay: Annotated[float, Field(ge=0)] = 5
    recent_login: Seconds = 600
    audit_required: bool = True
    mcp_approvals: bool = False
    webhook_timeout: Seconds = 10
    webhook_retry_delays: Annotated[list[Seconds], NoDecode] = Field(default=[5, 25, 125])
    webhook_allow_private: bool | None = None
    trusted_proxies: Annotated[list[ipaddress.IPv4Network | ipaddress.IPv6Network], NoDecode] = (
        Field(default=[])
    )

    @field_validator("data_dir")
    @classmethod
    def _expand(cls, value: Path) -> Path:
        try:
            return value.expanduser().absolute()
        except RuntimeError as error:
            raise ValueError(f"there is no home directory for {str(value)!r}") from error

    @field_validator("metrics_listen", "metrics_token", "tls_cert", "tls_key", mode="before")
    @classmethod
    def _is_set(cls, value: object) -> object:
        return value or None

    @field_validator("metrics_listen")
    @classmethod
    def _is_address(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return None
        host, port = _split_address(value)
        if not host or not 0 < port <= 65535:
            raise ValueError("it must be an address and a port, such as 127.0.0.1:9464")
        if port == info.data.get("port"):
            raise ValueError("its port must be another one than OUTRIDER_PORT")
        return value

    @field_validator("metrics_token")
    @classmethod
    def _is_token(cls, value: str | None) -> str | None:
        if value is not None and (len(value) < 16 or not value.isascii() or " " in value):
            raise ValueError(
                "it must have 16 characters or more, without spaces, such as those of "
                "`openssl rand -hex 32`"
            )
        return value

    @field_validator("tls_key")
    @classmethod
    def _has_certificate(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if value is not None and info.data.get("tls_cert") is None:
            raise ValueError("it needs OUTRIDER_TLS_CERT, the certificate of the key")
        return value

    @field_validator("allowed_hosts", "trusted_proxies", "webhook_retry_delays", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return (
            [part.strip() for part in value.split(",") if part.strip()]
            if isinstance(value, str)
            else value
        )

    @field_validator("allowed_hosts")
    @classmethod
    def _are_hosts(cls, value: list[str]) -> list[str]:
        names = [host_name(host) for host in value]
        if None in names or "*" in "".join(value):
            raise ValueError("it must be host names such as outrider.example.com, 10.0.0.5")
        return [name for name in names if name is not None]

    @field_validator("public_url")
    @classmethod
    def _is_origin(cls, value: str | None) -> str | None:
        """Return the URL in its normal form: scheme, host and port in lower case, no slash."""
        if not value:
            return None
        parts = urlsplit(value)
        try:
            is_origin = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # the port is not a number
            is_origin = False
        has_rest = parts.path.strip("/") or parts.query or parts.fragment or parts.username
        if not is_origin or has_rest or not parts.netloc.isprintable() or " " in parts.netloc:
            raise ValueError(
                "it must be an address such as https://outrider.example.com, without a path "
                "(OUTRIDER_BASE_PATH takes one)"
            )
        return f"{parts.scheme}://{parts.netloc.lower()}"

    @field_validator("base_path")
    @classmethod
    def _is_path(cls, value: str) -> str:
        """Return the path without a slash at its end; the root is empty."""
        path = value.rstrip("/")
        if path and not re.fullmatch(r"(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+", path):
            raise ValueError("it must be a path such as /outrider")
        return path

    @property
    def public_host(self) -> str | None:
        """The host of `public_url` without its port; None if it is not set."""
        return None if self.public_url is None else urlsplit(self.public_url).hostname

    @property
    def served_hosts(self) -> frozenset[str] | None:
        """The host names that are served in addition to loopback ones; None for any host."""
        if not (is_loopback(self.host) or self.public_host or self.allowed_hosts):
            return None
        return frozenset(self.allowed_hosts) | ({self.public_host} if self.public_host else set())

    @property
    def base_url(self) -> str:
        """The base URL for links: `public_url`, else one that works on this machine."""
        if self.public_url is not None:
            return self.public_url + self.base_path
        return self.local_url(self.host, self.port)

    def local_url(self, host: str, port: int) -> str:
        """Return the base URL for this machine, where the service listens on `host` and `port`."""
        return f"{self.scheme}://{reachable(host)}:{port}{self.base_path}"

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """The host and port of `metrics_listen`; None without it."""
        return None if self.metrics_listen is None else _split_address(self.metrics_listen)

    @property
    def scheme(self) -> str:
        """What the service itself serves: https with a certificate, otherwise http."""
        return "http" if self.tls_cert is None else "https"

    @property
    def allow_private_webhooks(self) -> bool:
        """Whether webhooks may go to private addresses.

        The default is true only if no other machine can reach the service. A service that listens
        on loopback may still be public through a proxy.
        """
        if self.webhook_allow_private is not None:
            return self.webhook_allow_private
        is_public = self.public_host is not None and not is_loopback(self.public_host)
        return is_loopback(self.host) and not self.trusted_proxies and not is_public

    @field_validator("redis_url")
    @classmethod
    def _is_redis(cls, value: str | None) -> str | None:
        if value and value.partition("://")[0] not in ("redis", "rediss", "redis+cluster"):
            raise ValueError("it must be an address such as redis://host:6379/0")
        return value or None

    @property
    def is_single_node(self) -> bool:
        """Whether no other node can use the database."""
        return self.sqlalchemy_url.startswith("sqlite")

    @property
    def sqlalchemy_url(self) -> str:
        """The database's URL with the driver that Outrider uses for it."""
        if not self.database_url:
            return f"sqlite+aiosqlite:///{self.data_dir / 'outrider.db'}"
        scheme, separator, rest = self.database_url.partition("://")
        drivers = {
            "postgresql": "postgresql+asyncpg",
            "postgres": "postgresql+asyncpg",
            "sqlite": "sqlite+aiosqlite",
        }
        return drivers.get(scheme, scheme) + separator + rest


def _split_address(text: str) -> tuple[str, int]:
    """Return the host, without brackets, and the port of an address; port 0 if it has none."""
    host, _, port = text.strip().rpartition(":")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        return "", 0
    return host.strip("[]"), int(port) if port.isascii() and port.isdecimal() else 0


def reachable(host: str) -> str:
    """Return the URL host at which this machine reaches a service that listens on `host`."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    return f"[{host}]" if ":" in host else host
