"""Why no server could be reached, for people."""

from __future__ import annotations

import re
from typing import Final

# gRPC's words around what happened.
_AROUND: Final = re.compile(
    r".*last error: [A-Z_]+: (?:(?:ipv[46]|unix):\S+: )?(?:Failed to connect to remote host: )?", re.S
)
_HINTS: Final = {
    "Connection refused": 'is a server running there? sparsefw-server starts one, and so does server="auto"',
    "Socket closed": "a server with TLS needs tls_ca",
    "WRONG_VERSION_NUMBER": "a server without TLS takes no tls_ca",
    "CERTIFICATE_VERIFY_FAILED": "the CA of tls_ca has not signed the server's certificate",
}


def explained(message: str) -> str:
    """gRPC's message in short, with what may help."""
    hint = next((hint for words, hint in _HINTS.items() if words in message), "")
    short = _AROUND.sub("", message, count=1)
    return f"{short}; {hint}" if hint else short
