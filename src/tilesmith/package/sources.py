"""Where packages come from: files, http and https, object stores through fsspec. Each can go on where it stopped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import url2pathname

from tilesmith.errors import PackageError
from tilesmith.toolchain.arriving import Patience, arriving
from tilesmith.toolchain.request import ask
from tilesmith.toolchain.stores import STORES, as_os_errors, file_system

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)")
_TAG = re.compile(r'"[!#-~]{1,200}"')
_DATE = re.compile(r"[A-Za-z0-9,: -]{10,40}")
_CHUNK = 1 << 16
_NOT_THERE = 416  # the range that was asked for


@dataclass(frozen=True)
class Part:
    """A file from byte ``begin`` on, up to its end.

    ``version`` changes with the content, and is empty where the source does not tell; ``total`` counts the bytes of the
    whole file, None where the source does not tell.
    """

    begin: int
    total: int | None
    version: str
    chunks: Iterator[bytes] = field(repr=False)


class Source(Protocol):
    """A file elsewhere."""

    @property
    def url(self) -> str:
        """Its address."""

    def open(self, begin: int, version: str, most: int, patience: Patience) -> Part:
        """The file from ``begin`` on, if it still has this version, else from 0 on; at most ``most`` bytes of it."""


@dataclass(frozen=True)
class HttpSource:
    """A file of a web server. Servers without ranges send all of it each time."""

    url: str

    def open(self, begin: int, version: str, most: int, patience: Patience) -> Part:
        headers = {"User-Agent": "tilesmith", "Accept": "*/*"}
        if not (begin and version):
            return self._part(0, "", most, patience, headers)
        ranged = headers | {"Range": f"bytes={begin}-", "If-Range": version}
        try:
            return self._part(begin, version, most, patience, ranged)
        except HTTPError as error:
            if error.code != _NOT_THERE:
                raise
            return self._part(0, "", most, patience, headers)

    def _part(self, begin: int, version: str, most: int, patience: Patience, headers: dict[str, str]) -> Part:
        reply, chunks = ask(self.url, most, patience, headers)
        length = reply.headers.get("content-length", "")
        total = int(length) if length.isascii() and length.isdecimal() else None
        now = _version(reply.headers.get("etag", ""), reply.headers.get("last-modified", ""))
        if reply.status != 206:
            return Part(0, total, now, chunks)
        found = _RANGE.fullmatch(reply.headers.get("content-range", ""))
        if found is None or int(found[1]) != begin or (now and now != version):
            raise OSError(f"it sends the range {reply.headers.get('content-range', '')[:60]!r} for bytes={begin}-")
        return Part(begin, None if found[3] == "*" else int(found[3]), version, chunks)


@dataclass(frozen=True)
class StoredSource:
    """An object of a store that fsspec reads, such as ``s3://bucket/name``."""

    url: str

    def open(self, begin: int, version: str, most: int, patience: Patience) -> Part:
        def pieces() -> Iterator[Any]:
            system, path = _file_system(self.url)
            about = system.info(path)
            now = " ".join(str(about.get(name, "")) for name in ("ETag", "etag", "LastModified", "updated", "created"))
            now = re.sub(r"[^!-~]+", " ", now).strip()[:200]
            size = about.get("size")
            start = begin if version and now == version else 0
            yield start, size, now
            if size is not None and size > most:
                raise ValueError(f"it holds {size} bytes, more than {most}")
            with system.open(path, "rb", block_size=1 << 20) as file:
                file.seek(start)
                while chunk := file.read(_CHUNK):
                    yield chunk

        arrived = arriving(lambda: as_os_errors(pieces()), patience)
        start, size, now = next(arrived)
        return Part(start, size, now, arrived)


def source_of(url: str) -> HttpSource | StoredSource | Path:
    """The source at a URL, or the path that a ``file://`` URL or a plain path names. Raises ``PackageError``."""
    found = _URL.match(url)
    if found is None:
        return Path(url)
    scheme = found[1].lower()
    if scheme == "file":
        return _local(url)
    if scheme in ("http", "https"):
        return HttpSource(url)
    if scheme in STORES:
        return StoredSource(url)
    raise PackageError(f"{url}: {scheme}:// is not known; known: http, https, file, s3, gs")


def is_remote(url: str) -> bool:
    """Whether a place is elsewhere: what lies there must be signed."""
    return not isinstance(source_of(url), Path)


def beside(url: str, file: str) -> str:
    """The URL (or path) of a file in the same folder as the one at ``url``."""
    if not is_remote(url):
        return str(Path(str(source_of(url))).parent / file)
    head, mark, _ = url.partition("?")
    return f"{head.rpartition('/')[0]}/{file}{mark and url[len(head):]}"


def inside(url: str, file: str) -> str:
    """The URL (or path) of a file in the folder at ``url``."""
    head, mark, query = url.partition("?") if is_remote(url) else (url, "", "")
    return beside(f"{head.rstrip('/')}/-{mark}{query}", file)


def _local(url: str) -> Path:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise PackageError(f"{url}: {parts.netloc!r} is not this machine; write file:///PATH")
    return Path(url2pathname(parts.path))


def _version(tag: str, date: str) -> str:
    """The value for If-Range: a strong tag, else a date."""
    if _TAG.fullmatch(tag):
        return tag
    return date if _DATE.fullmatch(date) else ""


def _file_system(url: str) -> tuple[Any, str]:
    try:
        return file_system(url)
    except ImportError as error:
        raise PackageError(str(error)) from None
