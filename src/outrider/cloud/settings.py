"""What the operator may set, by environment variables with the prefix `OUTRIDER_`."""

import ipaddress
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

Seconds = Annotated[float, Field(gt=0)]
Positive = Annotated[int, Field(gt=0)]


class Settings(BaseSettings):
    """The service's settings; each has the default of the contract."""

    model_config = SettingsConfigDict(env_prefix="OUTRIDER_", frozen=True, extra="ignore")

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8400
    data_dir: Path = Path("~/.local/share/outrider")
    database_url: str | None = None
    redis_url: str | None = None
    secret_key: str | None = None
    rate_limit_key: Positive = 120
    rate_limit_ip: Positive = 60
    rate_limit_auth: Positive = 10
    command_timeout: Seconds = 60
    grace_period: Annotated[float, Field(ge=0)] = 30
    node_timeout: Seconds = 15
    drain_delay: Annotated[float, Field(ge=0)] = 5
    recent_login: Seconds = 600
    webhook_timeout: Seconds = 10
    webhook_retry_delays: Annotated[list[Seconds], NoDecode] = Field(default=[5, 25, 125])
    webhook_allow_private: bool | None = None
    trusted_proxies: Annotated[list[ipaddress.IPv4Network | ipaddress.IPv6Network], NoDecode] = (
        Field(default=[])
    )

    @field_validator("data_dir")
    @classmethod
    def _expand(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @field_validator("trusted_proxies", "webhook_retry_delays", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return (
            [part.strip() for part in value.split(",") if part.strip()]
            if isinstance(value, str)
            else value
        )

    @property
    def allow_private_webhooks(self) -> bool:
        """Whether webhooks may go to private addresses: by default only from a laptop's own."""
        if self.webhook_allow_private is not None:
            return self.webhook_allow_private
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @field_validator("redis_url")
    @classmethod
    def _is_redis(cls, value: str | None) -> str | None:
        if value and value.partition("://")[0] not in ("redis", "rediss", "redis+cluster"):
            raise ValueError("it must be an address such as redis://host:6379/0")
        return value or None

    @property
    def is_single_node(self) -> bool:
        """Whether no other node can be at work on the database."""
        return self.sqlalchemy_url.startswith("sqlite")

    @property
    def sqlalchemy_url(self) -> str:
        """The database's address, with the driver that Outrider uses for it."""
        if not self.database_url:
            return f"sqlite+aiosqlite:///{self.data_dir / 'outrider.db'}"
        scheme, separator, rest = self.database_url.partition("://")
        drivers = {
            "postgresql": "postgresql+asyncpg",
            "postgres": "postgresql+asyncpg",
            "sqlite": "sqlite+aiosqlite",
        }
        return drivers.get(scheme, scheme) + separator + rest
