"""The bytes of a kernel package, ``.kdb``. Little-endian; ``runtime/csrc/ts_package.c`` reads them.

Header, 512 bytes::

      0  magic "TSKDB\\r\\n\\x1a"
      8  u32 version (2 if an entry is LZMA, else 1), u32 bytes of the header 512
     16  u64 bytes of the package
     24  u32 entries, u32 pages
     32  u64 bytes of the page table, u64 of the index, u64 of the payload; u64 0
     64  u64 counter, u64 date (seconds since 1970; 0: not said)
     80  sha256 of the page table
    112  32 bytes of text: generator; 144: 64: name; 208: 96: target; 304: 48: maker; each ends with NULs
    352  32 bytes 0
    384  ed25519 public key, 32 bytes; 416: signature, 64 bytes; both 0 in a package that is not signed
    480  sha256 of bytes 0 to 479

The page table, the index and the payload follow, without gaps. The index is an array of entries, sorted by kind, name
(bytes) and rank, and cut into pages of 64 entries; the last page may have fewer. The table has 56 bytes for each page,
then the names of their first entries, one after the other::

      0  u64 where the stored bytes of its first entry begin in the package
      8  u32 bytes of the page, u32 kind of its first entry, u32 its rank, u32 bytes of its name
     24  sha256 of the page

A page has 112 bytes for each of its entries, then their names, one after the other::

      0  u8 kind, u8 form (0 as it is, 1 deflated, 2 LZMA), u16 0
      4  u32 rank, u32 revision, u32 where its name begins in the page, u32 bytes of its name, u32 0
     24  u64 stored bytes, u64 bytes of the content, f64 time in microseconds
     48  sha256 of the content, sha256 of the stored bytes

The payload has the stored bytes of all entries in their order. A signature signs ``SIGNED`` and the sha256 of bytes 0
to 383, which are the identity of the package. Deflated entries are raw streams (RFC 1951). LZMA entries are raw
streams of LZMA1 with lc 1, lp 2, pb 3 and an end marker. Both have at most 64 MiB expanded.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from itertools import pairwise

from tilesmith.errors import PackageError
from tilesmith.package.records import MOST_ENTRIES, Form, KernelPackage, PackageEntry

MAGIC = b"TSKDB\r\n\x1a"
VERSION = 2
SIGNED = b"tilesmith package 1\n"
HEADER_BYTES = 512
_HEADER, _SEALED, _IDENTITY, _KEY, _PAGE = HEADER_BYTES, 480, 384, 32, 64
_HEAD = struct.Struct("<8sIIQIIQQQQQQ32s32s64s96s48s32x")
_ROW = struct.Struct("<QIIII32s")
_RECORD = struct.Struct("<BBHIIIIIQQd32s32s")


def encode(package: KernelPackage) -> bytes:
    """The bytes of a package without a signature; the same for the same records.

    Raises ``PackageError`` if two entries have the same key, or there are too many.
    """
    entries = sorted(package.entries, key=lambda entry: entry.key)
    twin = next((a for a, b in pairwise(entries) if a.key == b.key), None)
    if twin is not None:
        raise PackageError(f"two entries are {twin.kind.name.lower()} {twin.name!r} of rank {twin.rank}")
    if len(entries) > MOST_ENTRIES:
        raise PackageError(f"package of {len(entries)} entries; it may have {MOST_ENTRIES}")
    groups = [entries[at : at + _PAGE] for at in range(0, len(entries), _PAGE)]
    pages = list(map(_page, groups))
    table_bytes = len(pages) * _ROW.size + sum(len(group[0].name) for group in groups)
    at = _HEADER + table_bytes + sum(map(len, pages))
    rows, names = [], []
    for group, page in zip(groups, pages, strict=True):
        first = group[0]
        rows.append(_ROW.pack(at, len(page), first.kind, first.rank, len(first.name), hashlib.sha256(page).digest()))
        names.append(first.name.encode())
        at += sum(len(entry.stored) for entry in group)
    table, index, payload = b"".join(rows + names), b"".join(pages), b"".join(entry.stored for entry in entries)
    m = package.manifest
    version = VERSION if any(entry.form == Form.LZMA for entry in entries) else 1
    head = _HEAD.pack(
        MAGIC, version, _HEADER, at, len(entries), len(pages), len(table), len(index), len(payload), 0, m.counter,
        m.date, hashlib.sha256(table).digest(), m.generator.encode(), m.name.encode(), m.target.encode(),
        m.maker.encode(),
    )  # fmt: skip
    return _sealed(head + bytes(_SEALED - _IDENTITY)) + table + index + payload


def entry_bytes(entry: PackageEntry) -> int:
    """Bytes of an entry in a package, within a byte or two: stored bytes, name, record, and its share of the table."""
    return len(entry.stored) + len(entry.name) + _RECORD.size + (_ROW.size + len(entry.name)) // _PAGE + 1


def identity(data: bytes) -> bytes:
    """The 32 bytes that name the package in ``data``, signed or not: what a signature signs after ``SIGNED``."""
    return hashlib.sha256(data[:_IDENTITY]).digest()


def with_signature(data: bytes, public_key: bytes, signature: bytes) -> bytes:
    """The package in ``data`` with a signature of 64 bytes in place of the one that it has, if any.

    Raises ``PackageError`` for a key or signature of another length.
    """
    if len(public_key) != _KEY or len(signature) != 2 * _KEY:
        raise PackageError(f"a key of {len(public_key)} bytes and a signature of {len(signature)}: not 32 and 64")
    return _sealed(data[:_IDENTITY] + public_key + signature) + data[_HEADER:]


def _sealed(head: bytes) -> bytes:
    return head + hashlib.sha256(head).digest()


def _page(entries: Sequence[PackageEntry]) -> bytes:
    at = len(entries) * _RECORD.size
    records = []
    for entry in entries:
        records.append(
            _RECORD.pack(
                entry.kind, entry.form, 0, entry.rank, entry.revision, at, len(entry.name), 0,
                len(entry.stored), entry.size, entry.time_us, bytes.fromhex(entry.digest),
                hashlib.sha256(entry.stored).digest(),
            )
        )  # fmt: skip
        at += len(entry.name)
    return b"".join([*records, *(entry.name.encode() for entry in entries)])
