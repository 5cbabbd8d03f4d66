"""Signatures of packages: ed25519 (RFC 8032). The only file that imports the library ``cryptography``."""

from __future__ import annotations

from tilesmith.errors import PackageError

INSTALL = "pip install cryptography"


def is_signature(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """Whether a signature of 64 bytes is that of ``message`` by the key of 32 bytes."""
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        raise PackageError(f"signatures need a library: {INSTALL}") from None
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True
