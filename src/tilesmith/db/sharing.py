"""Puts records into a database that others read: a file of a shared folder, or an object of a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from tilesmith.db.exchange import ImportResult, merge
from tilesmith.db.opening import open_database
from tilesmith.db.records import Record
from tilesmith.db.remote import fetched, is_url
from tilesmith.db.store import Table
from tilesmith.errors import FileFormatError
from tilesmith.toolchain.arriving import Patience, arriving
from tilesmith.toolchain.files import read, scratch
from tilesmith.toolchain.stores import STORES, as_os_errors, file_system

TRIES = 5
STORE_S = 300.0  # for one step with a store
MOST_BYTES = 256 << 20


def push(records: Iterable[tuple[Table, Record]], place: str, policy: str) -> ImportResult:
    """Merge records into the database at ``place``: a path, ``file://``, or an object such as ``s3://bucket/team.db``.

    An object is fetched, merged into, put back and read again: where another process has put its own meanwhile, all
    begins anew. Raises ``FileFormatError`` where nothing can be written.
    """
    scheme = place.partition("://")[0].lower() if is_url(place) else ""
    if scheme in STORES:
        return _push_to_store(list(records), place, policy)
    if scheme not in ("", "file"):
        raise FileFormatError(
            f"{place}: nothing is written over {scheme}://; push to the folder or bucket behind it (a path, s3, gs)"
        )
    path = Path(url2pathname(urlsplit(place).path)) if scheme else Path(place)
    if not path.parent.is_dir():
        raise FileFormatError(f"{place}: cannot be written: no folder {path.parent}")
    with closing(open_database(path)) as opened:
        database = opened.for_writing()
        if not database.persistent:
            raise FileFormatError(f"{place}: cannot be written: see the warning")
        return merge(records, database, policy)


def _push_to_store(records: list[tuple[Table, Record]], url: str, policy: str) -> ImportResult:
    try:
        for _ in range(TRIES):
            before = _version(url)
            with scratch() as folder:
                path = folder / "team.db"
                if before:
                    path.write_bytes(fetched(url, STORE_S))
                with closing(open_database(path)) as database:
                    result = merge(records, database, policy)
                data = read(str(path), MOST_BYTES)
            if _version(url) != before:
                continue
            _put(url, data)
            if fetched(url, STORE_S) == data:
                return result
    except (OSError, ValueError, ImportError) as error:
        raise FileFormatError(f"{url}: cannot be written: {' '.join(str(error).split())}") from None
    raise FileFormatError(f"{url}: other processes wrote there at the same time, {TRIES} times; push again later")


def _version(url: str) -> str:
    """A text that changes with the object; empty if there is none."""

    def look() -> Iterator[str]:
        system, path = file_system(url)
        system.invalidate_cache()
        if not system.exists(path):
            yield ""
            return
        about = system.info(path)
        names = ("ETag", "etag", "generation", "LastModified", "updated", "created", "mtime", "size")
        yield " ".join(f"{name}={about[name]}" for name in names if name in about)

    return "".join(_within_time(look))


def _put(url: str, data: bytes) -> None:
    def put() -> Iterator[None]:
        system, path = file_system(url)
        system.pipe_file(path, data)
        yield

    _within_time(put)


def _within_time(work: Any) -> list[Any]:
    return list(arriving(lambda: as_os_errors(work()), Patience(STORE_S, STORE_S, STORE_S)))
