"""Why a service will not have this machine agent: connecting again is of no use."""

from typing import Final

from outrider.contract.errors import OutriderError
from outrider.contract.frames import PROTOCOL_VERSION, CloseCode


class LinkRefusedError(OutriderError):
    """The service will not have this machine agent: connecting again is of no use."""


class TokenRefusedError(LinkRefusedError):
    """The token was revoked."""

    def __init__(self) -> None:
        super().__init__(
            "The service does not accept this machine's token (it was revoked, or replaced by "
            "another setup): run `outrider setup` again"
        )


class UnsupportedVersionError(LinkRefusedError):
    """The service speaks another version of the protocol."""

    def __init__(self) -> None:
        super().__init__(
            f"The service does not speak version {PROTOCOL_VERSION} of the daemon protocol: "
            "update outrider so that both sides have the same version"
        )


class ReplacedError(LinkRefusedError):
    """Another machine agent connected with the same token."""

    def __init__(self) -> None:
        super().__init__(
            "Another machine agent connected with this machine's token: if the configuration "
            "was copied, run `outrider setup` on one of the two machines"
        )


REFUSALS: Final[dict[int, type[LinkRefusedError]]] = {
    CloseCode.UNAUTHORIZED: TokenRefusedError,
    CloseCode.UNSUPPORTED_VERSION: UnsupportedVersionError,
    CloseCode.REPLACED: ReplacedError,
}
"""The close codes after which a machine agent does not connect again."""
