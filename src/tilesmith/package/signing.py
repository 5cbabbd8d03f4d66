"""Private keys and what they sign: ed25519 (RFC 8032). The only file that imports the library ``cryptography``.

Who installs packages needs no such library: the runtime verifies signatures (``csrc/ts_ed25519.c``).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilesmith.errors import PackageError
from tilesmith.package.files import PackageFile
from tilesmith.package.form import SIGNED, identity, with_signature
from tilesmith.package.index import FIRST, PackageIndex, parse_index
from tilesmith.package.keys import SUFFIX, PublicKey, keys_folder, parse_key
from tilesmith.package.whole import package_bytes
from tilesmith.toolchain.files import read, read_regular, replace

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PRIVATE_SUFFIX = ".key"
_MOST_KEY = 1 << 16  # bytes of a file with a key
_INDEX = FIRST.encode()
_INSTALL = "pip install cryptography"


class SigningKey:
    """A private key with its public half. ``path`` is its file; ``warning`` says if other users can read it."""

    def __init__(self, key: Ed25519PrivateKey, public: PublicKey, path: Path, warning: str = "") -> None:
        self._key = key
        self.public = public
        self.path = path
        self.warning = warning

    @property
    def public_path(self) -> Path:
        """The file of the public key, beside the private one."""
        return _public_file(self.path)

    def sign(self, data: bytes) -> bytes:
        """The package in ``data`` with this key's signature, in place of the one that it has, if any.

        Every byte is verified first: a signature says that its maker vouches for the whole.

        Raises:
            PackageError: The package is damaged.
        """
        PackageFile(data).verify()
        return with_signature(data, self.public.data, self._key.sign(SIGNED + identity(data)))

    def sign_index(self, index: PackageIndex) -> PackageIndex:
        """The index with this key's signature, in place of the one that it has, if any."""
        return dataclasses.replace(index, public_key=self.public.data, signature=self._key.sign(index.message))


def make_key(name: str, path: Path | None = None, passphrase: str = "") -> SigningKey:
    """Make a key pair: ``path`` with the private key (mode 0600, PKCS #8 in PEM), and ``path.pub`` with the public one.

    Args:
        name: Of the public key.
        path: The file to make; None: ``NAME.key`` in ``keys_folder()``. What is there is never written over.
        passphrase: Encrypts the private key; empty: it is not encrypted.

    Raises:
        PackageError: A file exists or cannot be written, the name breaks its rule, or ``cryptography`` is not there.
    """
    serialization, ed25519 = _library()
    made = ed25519.Ed25519PrivateKey.generate()
    public = PublicKey(name, made.public_key().public_bytes_raw())
    file = keys_folder() / f"{name}{PRIVATE_SUFFIX}" if path is None else path
    encryption = serialization.BestAvailableEncryption(passphrase.encode()) if passphrase else None
    text = made.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption or serialization.NoEncryption()
    )
    try:
        if path is None:
            _make_folder(file.parent)
        _write_new(file, text, 0o600)
        try:
            _write_new(_public_file(file), f"{public.line}\n".encode(), 0o644)
        except OSError:
            os.unlink(file)
            raise
    except OSError as error:
        raise PackageError(f"{error.filename or file}: cannot be written: {error.strerror or error}") from None
    return SigningKey(made, public, file)


def load_key(word: str, passphrase: Callable[[], str] = str) -> SigningKey:
    """The private key of a file, or of a name that ``make_key`` put into ``keys_folder()``.

    Args:
        word: A path; a word without a separator that is no file is a name.
        passphrase: Called once if the key is encrypted.

    Raises:
        PackageError: There is no such key, the passphrase is wrong, it is of another algorithm, or ``cryptography`` is
            not there.
    """
    serialization, ed25519 = _library()
    path = Path(word)
    if os.sep not in word and not os.path.lexists(path):
        path = keys_folder() / f"{word}{PRIVATE_SUFFIX}"
    warnings = []

    def admit(about: os.stat_result) -> None:
        if about.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            warnings.append(f"{path}: other users can read this private key; `chmod 600 {path}`")

    try:
        text = read_regular(path, _MOST_KEY, admit)
    except (OSError, ValueError) as error:
        raise PackageError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    key = _decode(path, text, passphrase)
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise PackageError(f"{path}: it is no private key of ed25519")
    data = key.public_key().public_bytes_raw()
    return SigningKey(key, PublicKey(_name_beside(path, data), data), path, next(iter(warnings), ""))


def _decode(path: Path, text: bytes, passphrase: Callable[[], str]) -> object:
    serialization, _ = _library()
    is_encrypted = b"ENCRYPTED" in text.partition(b"\n")[0]
    word = passphrase().encode() if is_encrypted else None
    try:
        return serialization.load_pem_private_key(text, word)
    except Exception as error:  # the library has its own classes, of several modules
        if is_encrypted:
            raise PackageError(f"{path}: the passphrase is wrong, or the key is damaged") from None
        raise PackageError(f"{path}: it is no private key in PEM: {type(error).__name__}") from None


def sign_file(path: Path, key: SigningKey) -> str:
    """Sign a package, or the index of a folder, in its place, in one step.

    Returns:
        The public key in hex that had signed it before; empty if none had.

    Raises:
        PackageError: It is damaged, is neither, or cannot be written.
    """
    data = package_bytes(path)
    try:
        if data[: len(_INDEX)] == _INDEX:
            index = parse_index(data)
            before, signed = index.public_key, key.sign_index(index).text.encode()
        else:
            before, signed = PackageFile(data).public_key, key.sign(data)
        replace(path, signed, durable=True)
    except OSError as error:
        raise PackageError(f"{path}: cannot be written: {error.strerror or error}") from None
    except PackageError as error:
        raise PackageError(f"{path}: {error}") from None
    return before.hex()


def read_public(word: str) -> PublicKey:
    """The public key that a word is: its line, or a file that has one line.

    Raises ``PackageError`` for other text, and for a private key.
    """
    if word.startswith("ed25519:"):
        return parse_key(word)
    try:
        text = read(word, _MOST_KEY).decode()
    except (OSError, ValueError) as error:  # UnicodeDecodeError too
        raise PackageError(f"{word}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if "PRIVATE KEY" in text:
        raise PackageError(f"{word} is a private key: keep it to yourself, and trust {_public_file(Path(word))}")
    if len(lines) != 1:
        raise PackageError(f"{word}: {len(lines)} lines; a public key is one")
    return parse_key(lines[0])


def _library() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise PackageError(f"keys and signatures need a library: {_INSTALL}") from None
    return serialization, ed25519


def _public_file(path: Path) -> Path:
    return path.with_name(f"{path.name.removesuffix(PRIVATE_SUFFIX)}{SUFFIX}")


def _name_beside(path: Path, data: bytes) -> str:
    """The name that the public file beside a private key says; else one from the file's own name."""
    with contextlib.suppress(PackageError):
        beside = read_public(str(_public_file(path)))
        if beside.data == data:
            return beside.name
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in path.stem).strip("-") or "key"


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        _make_folder(folder.parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)


def _write_new(path: Path, data: bytes, mode: int) -> None:
    """Make a file that was not there, with this mode whatever the umask is; nobody can read it before."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.chmod(descriptor, mode)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
    except BaseException:
        os.unlink(path)
        raise
