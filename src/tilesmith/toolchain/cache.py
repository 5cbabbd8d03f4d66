"""The artifact cache: compiled kernels by the content of everything that made them.

An entry is two files. ``keys/<key>.json`` says which binary a key stands for, and carries its own checksum;
``objects/<digest>.so`` (``.cubin`` for a GPU) is the binary, named by the sha256 of its bytes. Both are checked on
every load. Writers stage a file, fsync and rename it, so readers see whole files alone; losing a race to another writer
changes nothing. Of several processes that miss the same kernel one compiles it while the others wait (``files.turn``).
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilesmith.errors import CompileError
from tilesmith.plan.records import Source
from tilesmith.targets.target import Target
from tilesmith.toolchain import files
from tilesmith.toolchain.build import Toolchain, build_unit, find_toolchain, flags_of, unit_text
from tilesmith.toolchain.resources import KernelResources
from tilesmith.toolchain.sealed import seal, unseal

_FORMAT = "tilesmith artifact 2"
_SUFFIXES = (".so", ".cubin")
_HEX = frozenset("0123456789abcdef")
_EM_CUDA = 190  # e_machine of a cubin's ELF header
_TURN_S = 120.0  # to wait for another process that compiles the same kernel
_log = logging.getLogger("tilesmith.cache")


@dataclass(frozen=True)
class Artifact:
    """A compiled binary: ``digest`` is the sha256 (hex) of the bytes of ``file``, just verified."""

    digest: str
    file: str

    @property
    def path(self) -> Path:
        return Path(self.file)


class ArtifactCache:
    """Compiled kernels under ``directory``, shared by any number of processes and threads.

    A directory that cannot be written, or fails while it is, degrades to a temporary one for the rest of the process,
    with one warning; what it holds is still read.
    """

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self._fallback: Path | None = None
        self._abandoned = False
        self._falling = threading.Lock()
        self._swept = False
        self._told = False  # that the directory fails

    def find(self, digest: str) -> Artifact | None:
        """The binary with this digest, verified; None if there is none that is whole."""
        if len(digest) != 64 or not _HEX.issuperset(digest):
            return None
        for folder in self.folders():
            for suffix in _SUFFIXES:
                file = _object_file(folder, digest, suffix)
                found = _digest_of(file)
                if found == digest:
                    return Artifact(digest, file)
                if found is not None:
                    _log.warning(
                        "cache entry %s is damaged (its bytes have sha256 %s); it counts as missing", file, found
                    )
        return None

    def resources(
        self, source: Source, target: Target, compiler: Toolchain | None = None
    ) -> tuple[KernelResources, ...]:
        """What the kernels of a CUDA source took when they were compiled; empty if they are not here."""
        key = artifact_key(source, target, compiler or find_toolchain(target))
        for folder in self.folders():
            with contextlib.suppress(OSError):
                record = read_entry(_key_path(folder, key).read_bytes(), key)
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

    def keep(
        self, source: Source, target: Target, compiler: Toolchain, path: Path, resources: Sequence[KernelResources]
    ) -> Artifact:
        """The binary at ``path``, which ``build_unit`` made of ``source`` alone: it is not compiled again here."""
        key = artifact_key(source, target, compiler)
        artifact = self._put_object(path.read_bytes())
        self.publish(f"keys/{key}.json", _entry(key, artifact.digest, source.symbol, compiler.identity, resources))
        return artifact

    def store(self, path: Path) -> Artifact:
        """Keep a copy of a binary made elsewhere; it can be found by its digest."""
        return self._put_object(path.read_bytes())

    # --- files ----------------------------------------------------------------------------------------------------

    def folders(self) -> tuple[Path, ...]:
        """Where files are looked for: the directory, and the temporary one that takes its place."""
        if self._fallback is None:
            return (self.directory,)
        return (self._fallback,) if self._abandoned else (self.directory, self._fallback)

    def publish(self, name: str, data: bytes) -> Path:
        """Keep a file: in the directory, else in the temporary one. ``OSError`` when neither takes it."""
        if self._fallback is None:
            try:
                files.publish(self.directory, self.directory / name, data)
                return self.directory / name
            except OSError as error:
                self._fall_back(error)
        assert self._fallback is not None
        files.publish(self._fallback, self._fallback / name, data)
        return self._fallback / name

    def give_up(self, error: Exception) -> bool:
        """Look at the directory no more: what lies there cannot be loaded. False if it was given up before."""
        if self._abandoned:
            return False
        try:
            self._fall_back(error)
        except OSError:
            return False
        self._abandoned = True
        return True

    def _fall_back(self, error: Exception) -> None:
        with self._falling:
            if self._fallback is None:
                folder = files.scratch_of_process()
                self.tell("cache directory %s cannot be used (%s); using %s", self.directory, error, folder)
                self._fallback = folder

    def tell(self, text: str, *values: object) -> None:
        """Warn of a directory that fails; once, for what follows is most likely of the same cause."""
        _log.log(logging.INFO if self._told else logging.WARNING, text, *values)
        self._told = True

    def _load(self, key: str) -> Artifact | None:
        for folder in self.folders():
            path = _key_path(folder, key)
            try:
                data = path.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self.tell("cache entry %s cannot be read (%s); it counts as missing", path, error)
                continue
            entry = read_entry(data, key)
            if entry is None:
                _log.warning("cache entry %s is damaged; its kernel is built again", path)
                continue
            digest = str(entry["digest"])
            artifact = self.find(digest)
            if artifact is not None:
                return artifact
            if not any(os.path.exists(_object_file(folder, digest, suffix)) for suffix in _SUFFIXES):  # else: told
                level = logging.INFO if self._abandoned else logging.WARNING  # it lies where we look no more
                _log.log(level, "cache entry %s has lost its binary %s; its kernel is built again", path, digest)
        return None

    def _build(self, key: str, source: Source, target: Target, compiler: Toolchain) -> Artifact:
        with files.turn(self.folders()[-1], key, _TURN_S):
            # Another process may have compiled it while this one waited.
            found = self._load(key)
            if found is None:
                try:
                    found = self._compile(key, source, target, compiler)
                except OSError as error:
                    raise CompileError(f"{source.symbol}: no folder takes the compiled kernel ({error})") from None
        if not self._swept:
            self._swept = True
            files.sweep(self.directory)
        return found

    def _compile(self, key: str, source: Source, target: Target, compiler: Toolchain) -> Artifact:
        with files.scratch() as folder:
            out = folder / "kernel.so"
            resources = build_unit([source], target, out, compiler)
            return self.keep(source, target, compiler, out, resources)

    def _put_object(self, data: bytes) -> Artifact:
        digest = hashlib.sha256(data).hexdigest()
        is_cubin = data[:4] == b"\x7fELF" and int.from_bytes(data[18:20], "little") == _EM_CUDA
        suffix = _SUFFIXES[is_cubin]
        for folder in self.folders():
            file = _object_file(folder, digest, suffix)
            if _digest_of(file) == digest:
                return Artifact(digest, file)
        return Artifact(digest, str(self.publish(f"objects/{digest}{suffix}", data)))


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


def _object_file(folder: Path, digest: str, suffix: str) -> str:
    return f"{folder}/objects/{digest}{suffix}"


def _digest_of(file: str) -> str | None:
    try:
        return hashlib.sha256(files.read(file)).hexdigest()
    except OSError:
        return None


def _entry(key: str, digest: str, symbol: str, compiler: str, resources: Sequence[KernelResources]) -> bytes:
    """The bytes of a key's file."""
    return seal({
        "format": _FORMAT, "key": key, "digest": digest, "symbol": symbol, "compiler": compiler,
        "resources": [each.as_dict() for each in resources],
    })  # fmt: skip


def read_entry(data: bytes, key: str) -> dict[str, Any] | None:
    """What a key's file says; None if any byte is not what was written for this key."""
    record = unseal(data)
    return record if record is not None and (record.get("format"), record.get("key")) == (_FORMAT, key) else None
