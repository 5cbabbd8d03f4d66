"""Layers that lie at a URL: fetched once, kept in the cache folder, and read there."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import time
from contextlib import suppress
from pathlib import Path

from tilesmith import env
from tilesmith.toolchain.files import publish

DAY_S = 86_400.0
AGAIN_S = 600.0  # after a URL that could not be reached
TIMEOUT_S = 10.0
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_log = logging.getLogger("tilesmith.db")
_SQLITE = b"SQLite format 3\0"


def is_url(name: str) -> bool:
    return _URL.match(name) is not None


def kept_copy(url: str, fetch: bool = True) -> Path:
    """The kept copy of what lies at ``url``, which is asked for again after a day. Never raises.

    An unreachable URL costs one warning; then the kept copy is read, however old, and if there is none the layer is
    empty. ``fetch`` false leaves the network alone.
    """
    folder = env.CACHE_DIR.get()
    path = folder / "layers" / f"{hashlib.sha256(url.encode('utf-8', 'replace')).hexdigest()[:32]}.db"
    age = _age_s(path)
    if not fetch or (age is not None and age < DAY_S):
        return path
    try:
        publish(folder, path, _fetch(url))
    except (OSError, ValueError) as error:  # urllib's errors are OSErrors, and ValueErrors for what is no URL
        kept = f"its copy of {age / DAY_S:.0f} days ago is used" if age is not None else "it counts as empty"
        _log.warning("database %s cannot be fetched (%s); %s", url, getattr(error, "reason", None) or error, kept)
        with suppress(OSError):
            os.utime(path, (time.time(), time.time() - DAY_S + AGAIN_S))
    return path


def _age_s(path: Path) -> float | None:
    try:
        return max(0.0, time.time() - path.stat().st_mtime)
    except OSError:
        return None


def _fetch(url: str) -> bytes:
    import http.client
    import urllib.request

    scheme = url.partition("://")[0].lower()
    if scheme not in ("http", "https", "file"):
        raise ValueError(f"{scheme}:// is not known; known: http, https, file")
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as reply:
            data: bytes = reply.read()
    except http.client.HTTPException as error:
        raise OSError(f"{type(error).__name__}: {error}") from None
    if not data.startswith(_SQLITE):
        raise ValueError("what lies there is no SQLite file")
    return data
