"""The artifact cache: compiled kernels by the content of everything that made them.

An entry is two files. ``keys/<key>.json`` says which binary a key stands for, and carries its own checksum;
``objects/<digest>.so`` (``.cubin`` for a GPU) is the binary, named by the sha256 of its bytes. Both are checked on
every load, and what has been checked is what is loaded: an ``Artifact`` holds the bytes. Writers stage a file, fsync
and rename it, so readers see whole files alone; losing a race to another writer changes nothing. Of several processes
that miss the same kernel one compiles it while the others wait (``files.exclusive``).
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilesmith.errors import CompileError
from tilesmith.plan.records import Source
from tilesmith.targets.target import Target
from tilesmith.toolchain import files
from tilesmith.toolchain.elf import CUDA, machine_of, why_it_cannot_run
from tilesmith.toolchain.sealed import seal, unseal
from tilesmith.toolchain.trust import why_distrusted

if TYPE_CHECKING:  # a process that compiles nothing imports no compiler
    from tilesmith.toolchain.resources import KernelResources
    from tilesmith.toolchain.toolchains import Toolchain

_FORMAT = "tilesmith artifact 2"
_SUFFIXES = (".so", ".cubin")
_HEX = frozenset("0123456789abcdef")
_LOCK_S = 20.0  # to wait for another process that compiles the same kernel: it may be stopped
_KEY_BYTES = 1 << 20  # of a key's file
_log = logging.getLogger("tilesmith.cache")


@dataclass(frozen=True)
class Artifact:
    """A compiled binary: ``digest`` is the sha256 (hex) of ``data``, the bytes that ``file`` held just now."""

    digest: str
    file: str
    data: bytes = field(repr=False, compare=False)

    @property
    def path(self) -> Path:
        return Path(self.file)


class ArtifactCache:
    """Compiled kernels under ``directory``, shared by any number of processes and threads.

    A directory that cannot be written, or fails while it is, degrades to a temporary one for the rest of the process,
    with one warning; what it holds is still read. Nothing is read from a directory that others can write
    (``toolchain.trust``).
    """

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self._fallback: Path | None = None
        self._abandoned = False
        self._admitted = False  # no other user can write there
        self._refused: set[str] = set()  # binaries that are whole, and could not be loaded
        self._falling = threading.Lock()
        self._cleaned = False
        self._told = False  # that the directory fails

    def find(self, digest: str) -> Artifact | None:
        """The verified binary with this digest; None if it is missing or damaged."""
        if len(digest) != 64 or not _HEX.issuperset(digest) or digest in self._refused:
            return None
        for folder in self.folders():
            for suffix in _SUFFIXES:
                found = self._read_object(_object_file(folder, digest, suffix), digest)
                if found is not None:
                    return found
        return None

    def refuse(self, artifacts: Sequence[Artifact], error: Exception) -> bool:
        """Count undamaged binaries that could not be loaded as missing from now on; False if they counted so before."""
        digests = {artifact.digest for artifact in artifacts} - self._refused
        if digests:
            self._refused |= digests
            _log.warning("a kernel of cache %s cannot be loaded (%s); it is built again", self.directory, error)
        return bool(digests)

    def has_refused(self, artifacts: Sequence[Artifact]) -> bool:
        """Whether one of these binaries could not be loaded before."""
        return not self._refused.isdisjoint(artifact.digest for artifact in artifacts)

    def resources(
        self, source: Source, target: Target, compiler: Toolchain | None = None
    ) -> tuple[KernelResources, ...]:
        """The resources of a CUDA source's kernels when they were compiled; empty if they are not here."""
        from tilesmith.toolchain.resources import KernelResources

        key = artifact_key(source, target, compiler or _toolchain(target))
        for folder in self.folders():
            with contextlib.suppress(OSError):
                record = read_entry(files.read(_key_file(folder, key), _KEY_BYTES, own=True), key)
                if record is not None:
                    return tuple(
                        KernelResources(**{**r, "warnings": tuple(r["warnings"])}) for r in record["resources"]
                    )
        return ()

    def lookup(self, source: Source, target: Target, compiler: Toolchain | None = None) -> Artifact | None:
        """The artifact of ``source``; None if it is missing or damaged."""
        return self._load(artifact_key(source, target, compiler or _toolchain(target)), target)

    def get_or_build(self, source: Source, target: Target, compiler: Toolchain | None = None) -> Artifact:
        """The artifact of ``source``, compiled if it is not here or damaged.

        Raises ``NoCompilerError`` or ``CompileError``.
        """
        compiler = compiler or _toolchain(target)
        key = artifact_key(source, target, compiler)
        return self._load(key, target) or self._build(key, source, target, compiler)

    def get_or_build_many(
        self, sources: Sequence[Source], target: Target, compiler: Toolchain | None = None
    ) -> tuple[Artifact | CompileError, ...]:
        """The artifact of each source, compiled on as many compilers at a time as there are cores.

        For a source that the compiler refuses, the list has its ``CompileError``; all other sources are built.
        """
        compiler = compiler or _toolchain(target)

        def one(source: Source) -> Artifact | CompileError:
            try:
                return self.get_or_build(source, target, compiler)
            except CompileError as error:
                return error

        distinct = list(dict.fromkeys(sources))
        missing = [s for s in distinct if self._load(artifact_key(s, target, compiler), target) is None]
        from concurrent.futures import ThreadPoolExecutor

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
        artifact = self._put_object(files.read(str(path)))
        self.publish(f"keys/{key}.json", _entry(key, artifact.digest, source.symbol, compiler.identity, resources))
        return artifact

    def store(self, path: Path) -> Artifact:
        """Keep a copy of a binary made elsewhere; it can be found by its digest."""
        return self._put_object(files.read(str(path)))

    # --- files ----------------------------------------------------------------------------------------------------

    def folders(self) -> tuple[Path, ...]:
        """Where files are looked for: the directory, and the temporary one that takes its place."""
        if not self._admitted:
            self._admit()
        if self._fallback is None:
            return () if self._abandoned else (self.directory,)
        return (self._fallback,) if self._abandoned else (self.directory, self._fallback)

    def publish(self, name: str, data: bytes) -> Path:
        """Keep a file: in the directory, else in the temporary one. ``OSError`` when neither takes it."""
        place = self.place()
        try:
            files.publish(place, place / name, data)
        except OSError as error:
            if place == self._fallback:
                raise
            self._fall_back(error)
            place = self.place()
            files.publish(place, place / name, data)
        return place / name

    def offer(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """Keep a file that saves the next process some work, if that is possible; if not, nothing is said."""
        with contextlib.suppress(OSError):
            for folder in self.folders()[:1]:
                files.publish(folder, folder / name, data, durable=durable)

    def place(self) -> Path:
        """The folder for new files: the last of ``folders``. ``OSError`` if there is none."""
        folders = self.folders()
        if not folders:
            self._fall_back(None)
            folders = self.folders()
        return folders[-1]

    def _admit(self) -> None:
        """Look, once for each process, which users can write to the directory."""
        with self._falling:
            if self._admitted:
                return
            reason = why_distrusted(self.directory)
            if reason is not None:
                self.tell("cache folder %s is not used: %s. Kernels go to a temporary folder", self.directory, reason)
                self._abandoned = True
            self._admitted = True

    @property
    def lasts(self) -> bool:
        """Whether what is kept outlives the process: the directory can be used."""
        return self.folders() == (self.directory,)

    def give_up(self, error: Exception) -> bool:
        """Look at the directory no more: what lies there cannot be loaded. False if it was given up before."""
        if self._abandoned:
            return False
        try:
            self._fall_back(error)
        except OSError:
            return False
        self._abandoned = True
        self._refused.clear()  # they may have been as good as any
        return True

    def _fall_back(self, error: Exception | None) -> None:
        """Begin a temporary folder; without an ``error`` it has been said why."""
        with self._falling:
            if self._fallback is None:
                folder = files.scratch_of_process()
                if error is not None:
                    self.tell("cache directory %s cannot be used (%s); using %s", self.directory, error, folder)
                self._fallback = folder

    def tell(self, text: str, *values: object) -> None:
        """Warn of a directory that fails; once, for what follows is most likely of the same cause."""
        _log.log(logging.INFO if self._told else logging.WARNING, text, *values)
        self._told = True

    def _load(self, key: str, target: Target) -> Artifact | None:
        for folder in self.folders():
            file = _key_file(folder, key)
            try:
                data = files.read(file, _KEY_BYTES, own=True)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self.tell("cache entry %s cannot be read (%s); it counts as missing", file, error)
                continue
            entry = read_entry(data, key)
            if entry is None:
                _log.warning("cache entry %s is damaged; its kernel is built again", file)
                continue
            digest = str(entry["digest"])
            artifact = self.find(digest)
            reason = why_it_cannot_run(artifact.data, target) if artifact is not None else None
            if reason is not None:
                _log.warning("cache entry %s is for another machine (%s); its kernel is built again", file, reason)
                continue
            if artifact is not None:
                _log.debug("cache hit: %s %s in %s", entry["symbol"], key, artifact.file)
                return artifact
            if digest not in self._refused and not any(
                os.path.lexists(_object_file(folder, digest, suffix)) for suffix in _SUFFIXES  # else: told
            ):  # fmt: skip
                level = logging.INFO if self._abandoned else logging.WARNING  # it lies where we look no more
                _log.log(level, "cache entry %s has lost its binary %s; its kernel is built again", file, digest)
        return None

    def _read_object(self, file: str, digest: str) -> Artifact | None:
        try:
            data = files.read(file, own=True)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self.tell("cache entry %s cannot be read (%s); it counts as missing", file, error)
            return None
        found = hashlib.sha256(data).hexdigest()
        if found == digest:
            return Artifact(digest, file, data)
        _log.warning("cache entry %s is damaged (its bytes have sha256 %s); it counts as missing", file, found)
        return None

    def _build(self, key: str, source: Source, target: Target, compiler: Toolchain) -> Artifact:
        _log.debug("cache miss: %s %s", source.symbol, key)
        with files.exclusive(self._locks(), key, _LOCK_S):
            # Another process may have compiled it while this one waited.
            found = self._load(key, target)
            if found is None:
                try:
                    found = self._compile(key, source, target, compiler)
                except OSError as error:
                    raise CompileError(f"{source.symbol}: no folder takes the compiled kernel ({error})") from None
        if not self._cleaned:
            self._cleaned = True
            files.remove_abandoned(self.place())
        return found

    def _locks(self) -> Path:
        """Where processes wait for each other; none does where nothing can be written."""
        try:
            return self.place()
        except OSError:
            return self.directory

    def _compile(self, key: str, source: Source, target: Target, compiler: Toolchain) -> Artifact:
        from tilesmith.toolchain.build import build_unit

        began = time.perf_counter()
        with files.scratch() as folder:
            out = folder / "kernel.so"
            resources = build_unit([source], target, out, compiler)
            made = self.keep(source, target, compiler, out, resources)
        milliseconds = (time.perf_counter() - began) * 1e3
        _log.info("compiled %s in %.0f ms with %s: %s", source.symbol, milliseconds, compiler.identity, made.file)
        return made

    def _put_object(self, data: bytes) -> Artifact:
        digest = hashlib.sha256(data).hexdigest()
        is_cubin = (machine_of(data) or (0, 0))[1] == CUDA
        suffix = _SUFFIXES[is_cubin]
        for folder in self.folders():
            file = _object_file(folder, digest, suffix)
            with contextlib.suppress(OSError):
                if files.read(file, own=True) == data:
                    return Artifact(digest, file, data)
        return Artifact(digest, str(self.publish(f"objects/{digest}{suffix}", data)), data)


def _toolchain(target: Target) -> Toolchain:
    from tilesmith.toolchain.toolchains import find_toolchain

    return find_toolchain(target)


def artifact_key(source: Source, target: Target, compiler: Toolchain) -> str:
    """The sha256 (hex) of everything that decides the binary's bytes.

    The number of cores is no part of it: every thread count runs the same kernel.
    """
    from tilesmith.toolchain.toolchains import flags_of, unit_text

    unit = unit_text([source])
    made_by = (compiler.fingerprint, target.arch, *flags_of(compiler, target))
    parts = (_FORMAT, source.language, source.symbol, unit, *made_by)
    digest = hashlib.sha256()
    for part in parts:
        text = part.encode()
        digest.update(len(text).to_bytes(8, "little") + text)
    return digest.hexdigest()


def _key_file(folder: Path, key: str) -> str:
    return f"{folder}/keys/{key}.json"


def _object_file(folder: Path, digest: str, suffix: str) -> str:
    return f"{folder}/objects/{digest}{suffix}"


def _entry(key: str, digest: str, symbol: str, compiler: str, resources: Sequence[KernelResources]) -> bytes:
    """The bytes of a key's file."""
    return seal({
        "format": _FORMAT, "key": key, "digest": digest, "symbol": symbol, "compiler": compiler,
        "resources": [each.as_dict() for each in resources],
    })  # fmt: skip


def read_entry(data: bytes, key: str) -> dict[str, Any] | None:
    """The contents of a key's file; None if any byte is not what was written for this key."""
    record = unseal(data)
    return record if record is not None and (record.get("format"), record.get("key")) == (_FORMAT, key) else None
