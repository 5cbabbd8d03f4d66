"""The public keys of those who sign packages: their one line of text, and the places that say which are trusted."""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tilesmith import env
from tilesmith.errors import PackageError
from tilesmith.toolchain.files import publish, read
from tilesmith.toolchain.trust import why_distrusted

ALGORITHM = "ed25519"
KEY_BYTES = 32
REVOKED = "revoked"
SUFFIX = ".pub"
_MOST_BYTES = 1 << 16  # of a file of keys
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")
_LOG = logging.getLogger("tilesmith.package")


@dataclass(frozen=True)
class PublicKey:
    """A public key of ed25519 and the name of its owner.

    Args:
        name: Letters, digits, ``.``, ``_``, ``@`` and ``-``; 63 characters at most.
        data: Its 32 bytes.

    Raises:
        PackageError: The name or the length is another.
    """

    name: str
    data: bytes

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise PackageError(f"key name {self.name!r} is not 1 to 63 letters, digits, '.', '_', '@' or '-'")
        if len(self.data) != KEY_BYTES:
            raise PackageError(f"a public key of {len(self.data)} bytes; an {ALGORITHM} key has {KEY_BYTES}")

    @property
    def line(self) -> str:
        """The key as text: ``ed25519:BASE64 NAME``. ``parse_key`` reads it."""
        return f"{ALGORITHM}:{base64.b64encode(self.data).decode()} {self.name}"

    @property
    def fingerprint(self) -> str:
        """``SHA256:`` and the digest of the key in base64, for people to compare."""
        return fingerprint(self.data)


@dataclass(frozen=True)
class HeldKey:
    """A key of a place that says whom to trust: the file that it stands in, and whether it is revoked there."""

    key: PublicKey
    file: Path
    is_revoked: bool


def fingerprint(data: bytes) -> str:
    """``SHA256:`` and the digest of a public key in base64 without padding, as OpenSSH writes those of its keys."""
    return f"SHA256:{base64.b64encode(hashlib.sha256(data).digest()).decode().rstrip('=')}"


def parse_key(text: str) -> PublicKey:
    """The key that a line ``ed25519:BASE64 NAME`` says.

    Raises:
        PackageError: The line has another form.
    """
    head, _, name = text.strip().partition(" ")
    algorithm, _, encoded = head.partition(":")
    try:
        if algorithm != ALGORITHM or "\n" in name:
            raise ValueError(text)
        data = base64.b64decode(encoded, validate=True)
        if base64.b64encode(data).decode() != encoded:  # one key has one spelling
            raise ValueError(text)
    except (ValueError, binascii.Error):
        raise PackageError(f"{text.strip()[:120]!r} is no public key: it must be `{ALGORITHM}:BASE64 NAME`") from None
    return PublicKey(name.strip(), data)


def keys_folder() -> Path:
    """Where ``package keygen NAME`` puts a key pair: ``keys`` in the user's configuration folder."""
    return env.user_config() / "keys"


def trusted_folder() -> Path:
    """Where ``package trust`` puts a key: ``trusted`` in the user's configuration folder."""
    return env.user_config() / "trusted"


def held_keys() -> tuple[HeldKey, ...]:
    """Every key of the user's folder and of TILESMITH_TRUSTED_KEYS, the user's first.

    A file that is damaged, cannot be read, or can have been written by another user is left out, with a warning.
    """
    own = trusted_folder()
    found = list(_keys_at(own)) if os.path.exists(own) else []
    for place in env.TRUSTED_KEYS.get():
        found += _keys_at(place)
    return tuple(found)


def trusted_keys() -> tuple[PublicKey, ...]:
    """The keys whose packages may be installed: those that are held and that no place revokes."""
    held = held_keys()
    revoked = {each.key.data for each in held if each.is_revoked}
    return tuple(each.key for each in held if each.key.data not in revoked)


def _keys_at(place: Path) -> Iterator[HeldKey]:
    """The keys of a file, or of the files ``*.pub`` of a folder."""
    reason = why_distrusted(place)
    if reason is not None:
        _LOG.warning("%s: its keys are not used: %s", place, reason)
        return
    files = [place]
    if os.path.isdir(place):
        try:
            files = [place / name for name in sorted(os.listdir(place)) if name.endswith(SUFFIX)]
        except OSError as error:
            _LOG.warning("%s: its keys cannot be read: %s", place, error.strerror or error)
            return
    for file in files:
        yield from _keys_in(file)


def _keys_in(file: Path) -> Iterator[HeldKey]:
    try:
        lines = read(str(file), _MOST_BYTES, own=True).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        _LOG.warning("%s: its keys are not used: %s", file, getattr(error, "strerror", None) or error)
        return
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        word, _, rest = text.partition(" ")
        is_revoked = word == REVOKED
        try:
            yield HeldKey(parse_key(rest if is_revoked else text), file, is_revoked)
        except PackageError as error:
            _LOG.warning("%s:%d: this key is not used: %s", file, number, error)


def hold(key: PublicKey, *, is_revoked: bool = False) -> Path:
    """Write a key into the user's folder, as one that is trusted, or as one that no place may make trusted.

    Returns:
        Its file, ``NAME.pub``.

    Raises:
        PackageError: The folder has another key of this name, or cannot be written.
    """
    file = trusted_folder() / f"{key.name}{SUFFIX}"
    if any(each.key.data != key.data for each in _held_in(file)):
        raise PackageError(f"{file} has another key of this name: `tilesmith package trust --remove {key.name}` first")
    try:
        publish(env.user_config(), file, f"{f'{REVOKED} ' if is_revoked else ''}{key.line}\n".encode())
    except OSError as error:
        raise PackageError(f"{file}: cannot be written: {error.strerror or error}") from None
    return file


def forget(name: str) -> Path:
    """Remove the keys of this name from the user's folder; returns the file that is gone.

    Raises:
        PackageError: The folder has none; the message says where one of this name lies.
    """
    file = trusted_folder() / f"{name}{SUFFIX}"
    try:
        if not _NAME.fullmatch(name):
            raise FileNotFoundError
        os.unlink(file)
    except FileNotFoundError:
        elsewhere = next((f": that one lies in {each.file}" for each in held_keys() if each.key.name == name), "")
        raise PackageError(f"{trusted_folder()} has no key {name!r}{elsewhere}") from None
    except OSError as error:
        raise PackageError(f"{file}: cannot be removed: {error.strerror or error}") from None
    return file


def _held_in(file: Path) -> Iterator[HeldKey]:
    return _keys_in(file) if os.path.exists(file) else iter(())
