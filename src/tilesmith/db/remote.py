"""Layers that lie at a URL: fetched once, kept in the cache folder, and read there."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from tilesmith import env
from tilesmith.db.waiting import left_s, operation
from tilesmith.errors import FileFormatError
from tilesmith.toolchain.files import publish, read

DAY_S = 86_400.0
AGAIN_S = 600.0  # after a URL that could not be reached
MOST_BYTES = 256 << 20  # of a database that is fetched
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_log = logging.getLogger("tilesmith.db")
_SQLITE = b"SQLite format 3\0"


def is_url(name: str) -> bool:
    return _URL.match(name) is not None


def cached_copy(url: str, fetch: bool = True) -> Path:
    """The kept copy of what lies at ``url``, which is asked for again after a day. Never raises.

    A URL that cannot be reached, that does not give all of a database of ``MOST_BYTES`` within the time that may be
    waited, or that gives none, costs one warning; then the kept copy is read, however old, and if there is none the
    layer is empty. ``fetch`` false leaves the network alone.
    """
    folder, path = env.CACHE_DIR.get(), _copy_of(url)
    age = _age_s(path)
    if not fetch or (age is not None and age < DAY_S):
        return path
    try:
        with operation():
            data = fetched(url, left_s())
        publish(folder, path, data)
    except (OSError, ValueError, ImportError) as error:  # urllib's are OSErrors, and ValueErrors for what is no URL
        kept = f"its copy of {age / DAY_S:.0f} days ago is used" if age is not None else "it counts as empty"
        _log.warning("database %s cannot be fetched (%s); %s", url, _reason(error), kept)
        with suppress(OSError):
            os.utime(path, (time.time(), time.time() - DAY_S + AGAIN_S))
    return path


def _copy_of(url: str) -> Path:
    return env.CACHE_DIR.get() / "layers" / f"{hashlib.sha256(url.encode('utf-8', 'replace')).hexdigest()[:32]}.db"


def _reason(error: BaseException) -> str:
    return " ".join(str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error).split())


def _age_s(path: Path) -> float | None:
    try:
        return max(0.0, time.time() - path.stat().st_mtime)
    except OSError:
        return None


def fetched(url: str, seconds: float) -> bytes:
    """The bytes at ``url``; ``OSError`` or ``ValueError`` if it is no database, is too long, or takes too long."""
    from tilesmith.toolchain.stores import STORES

    scheme = url.partition("://")[0].lower()
    if scheme in STORES:
        data = of_store(url, seconds)
    elif scheme in ("http", "https", "file"):
        data = _of_file(url) if scheme == "file" else _of_server(url, seconds)
    else:
        raise ValueError(f"{scheme}:// is not known; known: http, https, file, s3, gs")
    if not data.startswith(_SQLITE):
        raise ValueError("what lies there is no SQLite file")
    from tilesmith.db.connect import why_no_database

    reason = why_no_database(data)  # it would take the place of a copy that can be read
    if reason:
        raise ValueError(f"what lies there cannot be read as a database: {reason}")
    return data


def fetch_now(url: str, seconds: float) -> Path:
    """A new copy of what lies at ``url``, in the cache folder. Raises ``FileFormatError`` if none can be had."""
    path = _copy_of(url)
    try:
        publish(env.CACHE_DIR.get(), path, fetched(url, seconds))
    except (OSError, ValueError, ImportError) as error:
        raise FileFormatError(f"{url}: cannot be fetched ({_reason(error)})") from None
    return path


def of_store(url: str, seconds: float) -> bytes:
    """An object of a store that fsspec reads, such as ``s3://bucket/name``."""
    from tilesmith.toolchain.arriving import Patience, arriving
    from tilesmith.toolchain.stores import as_os_errors, file_system

    def pieces() -> Iterator[Any]:
        system, path = file_system(url)
        system.invalidate_cache()
        size = system.info(path).get("size")
        if size is not None and size > MOST_BYTES:
            raise ValueError(f"it holds {size} bytes, more than {MOST_BYTES}")
        with system.open(path, "rb", block_size=1 << 20) as file:
            while chunk := file.read(1 << 20):
                yield chunk

    return b"".join(arriving(lambda: as_os_errors(pieces()), Patience(seconds, seconds, seconds)))


def _of_file(url: str) -> bytes:
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise ValueError(f"{parts.netloc!r} is not this machine; write file:///PATH")
    return read(url2pathname(parts.path), MOST_BYTES)


def _of_server(url: str, seconds: float) -> bytes:
    from tilesmith.toolchain.arriving import Patience
    from tilesmith.toolchain.request import ask

    _, body = ask(url, MOST_BYTES, Patience(seconds, seconds, seconds))
    return b"".join(body)
