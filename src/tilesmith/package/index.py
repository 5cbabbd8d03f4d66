"""The index of a folder of packages: a text that Python, C and a shell read. docs/reference/package-index.md has it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tilesmith.errors import PackageError
from tilesmith.package.records import Manifest
from tilesmith.package.whole import MOST_PACKAGE, opened, package_bytes, verify
from tilesmith.toolchain.files import replace

INDEX_FILE = "tilesmith-packages.txt"
SIGNED = b"tilesmith package index 1\n"
MOST_BYTES = 1 << 20  # of an index
MOST_PACKAGES = 4096  # of an index
_LEAST_PACKAGE = 512  # bytes: those of the header
_FIRST = "tilesmith packages 1"
_U64 = 1 << 64
_NUMBER = re.compile(r"0|[1-9][0-9]{0,19}")
_TARGET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+-]{0,94}")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SIGNED = re.compile(r"signed ([0-9a-f]{64}) ([0-9a-f]{128})")
_FILE = re.compile(r"(?=.{5,200}\Z)[A-Za-z0-9_+][A-Za-z0-9._+-]*\.kdb")


@dataclass(frozen=True)
class IndexLine:
    """One package of an index: its manifest's target, name and counter; sha256 (hex) and bytes of its file; the file.

    Raises ``PackageError`` for a field outside its rule.
    """

    target: str
    name: str
    counter: int
    sha256: str
    nbytes: int
    file: str

    def __post_init__(self) -> None:
        for what, text, rule in (("target", self.target, _TARGET), ("name", self.name, _NAME),
                                 ("sha256", self.sha256, _SHA256), ("file", self.file, _FILE)):  # fmt: skip
            if not rule.fullmatch(text):
                raise PackageError(f"{what} {text!r} cannot stand in an index of packages: its rule: {rule.pattern}")
        for what, number, least, most in (("counter", self.counter, 0, _U64 - 1),
                                          ("bytes", self.nbytes, _LEAST_PACKAGE, MOST_PACKAGE)):  # fmt: skip
            if not least <= number <= most:
                raise PackageError(f"{what} {number} cannot stand in an index of packages: from {least} to {most}")

    @property
    def key(self) -> tuple[str, str, int]:
        """Lines of an index have distinct keys, and stand in their order."""
        return self.name, self.target, self.counter


@dataclass(frozen=True)
class PackageIndex:
    """The packages of a folder in the order of their keys, and its signature if there is one.

    ``public_key`` has 32 bytes and ``signature`` 64; both are empty in an index that is not signed. Raises
    ``PackageError`` for too many lines, or two of one key or file.
    """

    lines: tuple[IndexLine, ...]
    public_key: bytes = b""
    signature: bytes = b""

    def __post_init__(self) -> None:
        if len(self.lines) > MOST_PACKAGES:
            raise PackageError(f"an index of {len(self.lines)} packages; it may have {MOST_PACKAGES}")
        keys = [line.key for line in self.lines]
        if keys != sorted(keys):
            raise PackageError("the packages of the index do not stand in order of name, target and counter")
        twin = _twin(keys) or _twin(line.file for line in self.lines)
        if twin is not None:
            raise PackageError(f"two packages of the index are {twin}")

    @property
    def content(self) -> str:
        """All lines that a signature signs."""
        lines = (f"{x.target} {x.name} {x.counter} {x.sha256} {x.nbytes} {x.file}" for x in self.lines)
        return "\n".join((_FIRST, *lines, f"end {len(self.lines)}", ""))

    @property
    def message(self) -> bytes:
        """The bytes that are signed."""
        return SIGNED + hashlib.sha256(self.content.encode()).digest()

    @property
    def text(self) -> str:
        """The index as its file has it."""
        signed = f"signed {self.public_key.hex()} {self.signature.hex()}\n" if self.public_key else ""
        return self.content + signed


def parse_index(data: bytes) -> PackageIndex:
    """The index in ``data``; the inverse of ``text``.

    Raises ``PackageError`` for one that is cut off, of another version, or breaks a rule; it names the line.
    """
    if len(data) > MOST_BYTES:
        raise PackageError(f"an index of {len(data)} bytes; it may have {MOST_BYTES}")
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError as error:
        raise PackageError(f"is no index of packages: byte {error.start} is not ASCII") from None
    first, *rest = text.split("\n")
    if first != _FIRST:
        raise PackageError(f"is no index of packages: line 1 is {first[:60]!r}, not {_FIRST!r}")
    at = next((place for place, line in enumerate(rest) if line.startswith("end ")), None)
    if at is None or len(rest) == at + 1:
        raise PackageError("this index of packages is cut off: its line `end COUNT` is missing")
    if rest[at] != f"end {at}":
        raise PackageError(f"line {at + 2} of the index is {rest[at][:60]!r}, after {at} packages")
    signed = _SIGNED.fullmatch(rest[at + 1]) if len(rest) == at + 3 else None
    if rest[at + 1 :] != [""] and (signed is None or rest[-1] != ""):
        raise PackageError(f"line {at + 3} of the index is no signature with which an index ends")
    lines = tuple(_line(number, line) for number, line in enumerate(rest[:at], 2))
    key, signature = (bytes.fromhex(signed[1]), bytes.fromhex(signed[2])) if signed else (b"", b"")
    return PackageIndex(lines, key, signature)


def index_of(folder: Path) -> PackageIndex:
    """The index of the packages that lie in a folder now. Every byte of them is verified.

    Raises ``PackageError`` for a folder that cannot be read, and for a package that is damaged or whose file's name
    cannot stand in an index.
    """
    try:
        paths = sorted(path for path in folder.iterdir() if path.name.endswith(".kdb") and path.name[0] != ".")
    except OSError as error:
        raise PackageError(f"{folder}: cannot be read: {error.strerror or error}") from None
    lines = []
    for path in paths:
        data = package_bytes(path)
        package = opened(data, str(path))
        verify(package, str(path))
        manifest = package.manifest
        try:
            lines.append(index_line(manifest, data, path.name))
        except PackageError as error:
            raise PackageError(f"{path}: {error}") from None
    return PackageIndex(tuple(sorted(lines, key=lambda line: line.key)))


def index_line(manifest: Manifest, data: bytes, file: str) -> IndexLine:
    """The line of the package in ``data``, which lies in ``file``."""
    m = manifest
    return IndexLine(m.target, m.name, m.counter, hashlib.sha256(data).hexdigest(), len(data), file)


def write_index(folder: Path, index: PackageIndex) -> Path:
    """Write the index of a folder in one step; returns its file. Raises ``PackageError`` if it cannot be written."""
    path = folder / INDEX_FILE
    try:
        replace(path, index.text.encode(), durable=True)
    except OSError as error:
        raise PackageError(f"{path}: cannot be written: {error.strerror or error}") from None
    return path


def _line(number: int, text: str) -> IndexLine:
    words = text.split(" ")
    if len(words) != 6 or not (_NUMBER.fullmatch(words[2]) and _NUMBER.fullmatch(words[4])):
        raise PackageError(f"line {number} of the index is {text[:200]!r}, not TARGET NAME COUNTER SHA256 BYTES FILE")
    target, name, counter, sha256, nbytes, file = words
    try:
        return IndexLine(target, name, int(counter), sha256, int(nbytes), file)
    except PackageError as error:
        raise PackageError(f"line {number} of the index: {error}") from None


def _twin(values: Iterable[object]) -> object | None:
    """A value that stands twice."""
    seen = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None
