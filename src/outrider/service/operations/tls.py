"""The certificate of a service that terminates TLS itself."""

import ssl
from pathlib import Path

import structlog

from outrider.contract.errors import OutriderError
from outrider.service.settings import Settings

_log = structlog.get_logger(__name__)


class CertificateError(OutriderError):
    """The certificate or its key cannot be used. The text says why."""


class ServerCertificate:
    """The certificate chain and private key of the settings, and the TLS context that uses them.

    Raises:
        CertificateError: they cannot be read, or do not belong together.
    """

    def __init__(self, chain: Path, key: Path | None) -> None:
        self._chain = chain
        self._key = key
        self.context = self._new_context()

    @classmethod
    def of(cls, settings: Settings) -> "ServerCertificate | None":
        """Return the certificate of the settings; None without one. Raises CertificateError."""
        if settings.tls_cert is None:
            return None
        return cls(settings.tls_cert, settings.tls_key)

    def reload(self) -> None:
        """Read the files again, for connections opened from now on; open ones stay.

        If the files cannot be used, the previous certificate stays and the log says why.
        """
        try:
            self._new_context()  # a chain that fails halfway must not reach the context in use
            self._load(self.context)
        except CertificateError as error:
            _log.error("certificate not reloaded, previous one still in use", reason=str(error))
        else:
            _log.info("certificate reloaded", file=str(self._chain))

    def _new_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        self._load(context)
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        try:
            # Without a password here, OpenSSL would ask for one on the terminal.
            context.load_cert_chain(self._chain, self._key, password="")
        except ssl.SSLError as error:
            reason = (error.reason or str(error)).lower().replace("_", " ")
            raise CertificateError(
                f"The certificate {self._chain} and its key {self._key or self._chain} cannot be "
                f"used ({reason}): they must be PEM files, the key without a password"
            ) from error
        except OSError as error:
            # OpenSSL's error does not say which of the two it is.
            file = next(
                (path for path in (self._chain, self._key) if path and not _is_readable(path)),
                self._chain,
            )
            raise CertificateError(f"{file} cannot be read: {error.strerror or error}") from error


def _is_readable(path: Path) -> bool:
    try:
        with path.open("rb"):
            return True
    except OSError:
        return False
