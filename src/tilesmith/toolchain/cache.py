"""The artifact cache: compiled kernels by the content of everything that made them.

An entry is two files. ``keys/<key>.json`` says which binary a key stands for, and carries its own checksum;
``objects/<digest>.so`` (``.cubin`` for a GPU) is the binary, named by the sha256 of its bytes. Both are checked on
every load. Writers stage a file, fsync and rename it, so readers see whole files alone; losing a race to another writer
changes nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilesmith.errors import CompileError
from tilesmith.plan.records import Source
from tilesmith.targets.target import Target
from tilesmith.toolchain.build import Toolchain, build_unit, find_toolchain, flags_of, unit_text
from tilesmith.toolchain.resources import KernelResources

_FORMAT = "tilesmith artifact 2"
_SUFFIXES = (".so", ".cubin")
_EM_CUDA = 190  # e_machine of a cubin's ELF header
_log = logging.getLogger("tilesmith.cache")


@dataclass(frozen=True)
class Artifact:
    """A compiled binary: ``digest`` is the sha256 (hex) of the bytes at ``path``, just verified."""

    digest: str
    path: Path


class ArtifactCache:
    """Compiled kernels under ``directory``, shared by any number of processes and threads.

    A directory that cannot be written degrades to a temporary one, with one warning; what it holds is still read.
    """

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self._fallback: Path | None = None

    def find(self, digest: str) -> Artifact | None:
        """The binary with this digest, verified; None if there is none that is whole."""
        if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
            return None
        for path in (_object_path(folder, digest, suffix) for folder in self._folders() for suffix in _SUFFIXES):
            found = _digest_of(path)
            if found == digest:
                return Artifact(digest, path)
            if found is not None:
                _log.warning("cache entry %s is damaged (its bytes have sha256 %s); it counts as missing", path, found)
        return None

    def resources(
        self, source: Source, target: Target, compiler: Toolchain | None = None
    ) -> tuple[KernelResources, ...]:
        """What the kernels of a CUDA source took when they were compiled; empty if they are not here."""
        key = artifact_key(source, target, compiler or find_toolchain(target))
        for folder in self._folders():
            with contextlib.suppress(OSError):
                record = _read_record(_key_path(folder, key).read_bytes(), key)
                if record is not None:
                    return tuple(
                        KernelResources(**{**r, "warnings": tuple(r["warnings"])}) for r in record["resources"]
                    )
        return ()

    def lookup(self, source: Source, target: Target, compiler: Toolchain | None = None) -> Artifact | None:
        """The artifact of ``source`` if it is here and whole."""
        return self._load(artifact_key(source, target, compiler or find_toolchain(target)))

    def get_or_build(self, source: Source, target: Target, compiler: Toolchain | None = None) -> Artifact:
        """The artifact of ``source``, compiled if it is not here or damaged.

        Raises ``NoCompilerError`` or ``CompileError``.
        """
        compiler = compiler or find_toolchain(target)
        key = artifact_key(source, target, compiler)
        return self._load(key) or self._build(key, source, target, compiler)

    def get_or_build_many(
        self, sources: Sequence[Source], target: Target, compiler: Toolchain | None = None
    ) -> tuple[Artifact | CompileError, ...]:
        """The artifact of each source, compiled on as many compilers at a time as there are cores.

        A source that the compiler refuses has its ``CompileError`` in its place; the others are built all the same.
        """
        compiler = compiler or find_toolchain(target)

        def one(source: Source) -> Artifact | CompileError:
            try:
                return self.get_or_build(source, target, compiler)
            except CompileError as error:
                return error

        distinct = list(dict.fromkeys(sources))
        missing = [s for s in distinct if self._load(artifact_key(s, target, compiler)) is None]
        # The work happens in compiler processes, so threads are enough to start them and wait.
        workers = max(1, min(len(missing), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1))
        with ThreadPoolExecutor(workers) as pool:
            built = dict(zip(missing, pool.map(one, missing), strict=True))
        return tuple(built[source] if source in built else one(source) for source in sources)

    def store(self, path: Path) -> Artifact:
        """Keep a copy of a binary made elsewhere; it can be found by its digest."""
        data = path.read_bytes()
        return self._put_object(self._writable(), data)

    # --- files ----------------------------------------------------------------------------------------------------

    def _folders(self) -> tuple[Path, ...]:
        return (self.directory,) if self._fallback is None else (self.directory, self._fallback)

    def _load(self, key: str) -> Artifact | None:
        for folder in self._folders():
            path = _key_path(folder, key)
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                continue
            except OSError as error:
                _log.warning("cache entry %s cannot be read (%s); it counts as missing", path, error)
                continue
            digest = _read_entry(data, key)
            if digest is None:
                _log.warning("cache entry %s is damaged; its kernel is built again", path)
                continue
            artifact = self.find(digest)
            if artifact is not None:
                return artifact
            _log.warning("cache entry %s has lost its binary %s; its kernel is built again", path, digest)
        return None

    def _build(self, key: str, source: Source, target: Target, compiler: Toolchain) -> Artifact:
        with tempfile.TemporaryDirectory(prefix="tilesmith-") as scratch:
            out = Path(scratch) / "kernel.so"
            resources = build_unit([source], target, out, compiler)
            data = out.read_bytes()
        folder = self._writable()
        artifact = self._put_object(folder, data)
        _write(_key_path(folder, key), _entry(key, artifact.digest, source.symbol, compiler.identity, resources))
        return artifact

    def _put_object(self, folder: Path, data: bytes) -> Artifact:
        digest = hashlib.sha256(data).hexdigest()
        is_cubin = data[:4] == b"\x7fELF" and int.from_bytes(data[18:20], "little") == _EM_CUDA
        path = _object_path(folder, digest, _SUFFIXES[is_cubin])
        if _digest_of(path) != digest:
            _write(path, data)
        return Artifact(digest, path)

    def _writable(self) -> Path:
        """``directory``, or the temporary folder that takes its place for the rest of the process."""
        if self._fallback is not None:
            return self._fallback
        try:
            for part in ("keys", "objects"):
                (self.directory / part).mkdir(mode=0o700, parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=self.directory / part):
                    pass
        except OSError as error:
            fallback = Path(tempfile.mkdtemp(prefix="tilesmith-cache-"))
            _log.warning("cache directory %s cannot be written (%s); using %s", self.directory, error, fallback)
            atexit.register(shutil.rmtree, fallback, ignore_errors=True)
            for part in ("keys", "objects"):
                (fallback / part).mkdir(mode=0o700)
            self._fallback = fallback
            return fallback
        return self.directory


def artifact_key(source: Source, target: Target, compiler: Toolchain) -> str:
    """The sha256 (hex) of everything that decides the binary's bytes.

    The number of cores is no part of it: every thread count runs the same kernel.
    """
    unit = unit_text([source])
    parts = (_FORMAT, source.language, source.symbol, unit, compiler.identity, target.arch, *flags_of(compiler, target))
    digest = hashlib.sha256()
    for part in parts:
        text = part.encode()
        digest.update(len(text).to_bytes(8, "little") + text)
    return digest.hexdigest()


def _key_path(folder: Path, key: str) -> Path:
    return folder / "keys" / f"{key}.json"


def _object_path(folder: Path, digest: str, suffix: str) -> Path:
    return folder / "objects" / f"{digest}{suffix}"


def _digest_of(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def _entry(key: str, digest: str, symbol: str, compiler: str, resources: Sequence[KernelResources]) -> bytes:
    """The bytes of a key's file: one JSON line, then the sha256 of that line."""
    record = {
        "format": _FORMAT, "key": key, "digest": digest, "symbol": symbol, "compiler": compiler,
        "resources": [each.as_dict() for each in resources],
    }  # fmt: skip
    line = json.dumps(record, sort_keys=True).encode() + b"\n"
    return line + hashlib.sha256(line).hexdigest().encode() + b"\n"


def _read_entry(data: bytes, key: str) -> str | None:
    """The digest that a key's file names; None if any byte is not what was written for this key."""
    record = _read_record(data, key)
    return None if record is None else str(record["digest"])


def _read_record(data: bytes, key: str) -> dict[str, Any] | None:
    line, newline, seal = data.partition(b"\n")
    if seal != hashlib.sha256(line + newline).hexdigest().encode() + b"\n":
        return None
    record: dict[str, Any] = json.loads(line)  # the seal holds, so these are bytes that _entry wrote
    return record if (record["format"], record["key"]) == (_FORMAT, key) else None


def _write(path: Path, data: bytes) -> None:
    """Stage, fsync, rename."""
    descriptor, staged = tempfile.mkstemp(prefix=".stage-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(staged, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(staged)
        raise
