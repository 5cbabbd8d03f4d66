"""Plans kept beside the artifacts that they count, so that a machine without a compiler launches what is there.

``plans/<key>/<maker>.plan`` holds one plan. The key says what was chosen for which problem; the maker, what generated
it: an upgrade of the generator makes a new file in the same folder. A plan of another maker is *stale*: its bytes and
its artifacts are whole, so it launches as well as ever; a process with a compiler makes it again. It counts as missing
if its kernels are known to compute wrong numbers (``plan.withdrawn``).

A file carries a checksum of its name and content, and the plan in it names its artifacts by digest: a file that is
damaged, lies in another's place, or has lost an artifact counts as missing.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tilesmith.errors import PlanError
from tilesmith.plan.records import Plan
from tilesmith.plan.serial import Serial, check_header, decode, encode, read_head
from tilesmith.solvers.generation import generator_digest
from tilesmith.targets.target import CpuTarget, Target
from tilesmith.toolchain import memo
from tilesmith.toolchain.cache import Artifact, ArtifactCache
from tilesmith.toolchain.elf import why_it_cannot_run
from tilesmith.toolchain.files import read
from tilesmith.toolchain.sealed import bind, unbind

_FORMAT = "tilesmith plan 3"
# Variables that say which C compiler is wanted, before any is looked for. A hit reads them: no more than it must.
_ASKED_FOR = ("CC", "COMPILER_PATH", "GCC_EXEC_PREFIX")
_log = logging.getLogger("tilesmith.cache")


@dataclass(frozen=True)
class HeldPlan:
    """A plan of the cache with its artifacts, in the plan's order; ``stale`` when another generator made it.

    One that is not stale has been read as far as its artifacts: today's generator has sealed it, and the process that
    loads it checks the rest.
    """

    serial: Serial
    artifacts: tuple[Artifact, ...]
    stale: bool

    @property
    def plan(self) -> Plan:
        return self.serial.plan


def find_plan(
    cache: ArtifactCache, problem: str, solver: str, revision: int, config: str, target: Target
) -> HeldPlan | None:
    """The plan of a choice, made by today's generator if there is one, else the youngest of another."""
    found = find_todays_plan(cache, problem, solver, revision, config, target)
    if found is not None:
        return found
    names, maker = _folders(problem, solver, revision, config, target), _maker(target)
    for path in _youngest_first([folder / name for folder in cache.folders() for name in names]):
        if path.stem != maker and (found := _load(str(path), cache, target, stale=True)) is not None:
            return found
    return None


def find_todays_plan(
    cache: ArtifactCache, problem: str, solver: str, revision: int, config: str, target: Target
) -> HeldPlan | None:
    """The plan of a choice that today's generator made for this very target: so the solver takes the problem here."""
    memo.recall(cache)
    name = f"{_folders(problem, solver, revision, config, target)[0]}/{_maker(target)}.plan"
    for folder in cache.folders():
        found = _load(f"{folder}/{name}", cache, target, stale=False)
        if found is not None:
            return found
    return None


def keep_plan(cache: ArtifactCache, plan: Plan | Serial, revision: int, target: Target) -> None:
    """Store a plan. If it cannot be written, the next process makes it again."""
    folder = _folders(plan.problem, plan.solver, revision, plan.config, target)[0]
    name = f"{folder}/{_maker(target)}.plan"
    payload = plan.data if isinstance(plan, Serial) else encode(plan)
    try:
        cache.publish(name, bind(name, payload))
    except OSError as error:
        cache.tell("plan %s cannot be kept (%s)", folder, error)
        return
    memo.remember(cache)


def _folders(problem: str, solver: str, revision: int, config: str, target: Target) -> tuple[str, str]:
    """The paths of a choice's plans: the current one, and that of versions whose targets had no card."""
    names, facts = (target.name, f"{target.arch}:{target.cores}"), _instructions(target)
    keys = [digest_of(_FORMAT, problem, solver, str(revision), config, name, *facts)[:40] for name in names]
    return f"plans/{keys[0]}", f"plans/{keys[1]}"


def _instructions(target: Target) -> tuple[str, ...]:
    """The instructions that a target's kernels may use; its name says them unless the record has been changed."""
    if isinstance(target, CpuTarget):
        facts = (str(target.vector_bytes), str(target.bf16_dot), str(target.fp16_convert))
        return (*facts, "bf16_tiles") if target.bf16_tiles else facts  # without tiles the keys are as they were
    return ()


def maker_of(target: Target) -> tuple[str, ...]:
    """All that makes plans and their kernels: the generator, every fact of the target that it may ask for, and what the
    environment says of the compiler (nothing is compiled to find a plan, so the compiler itself is not asked)."""
    made_by = generator_digest(target.family), _facts(target)
    asked_for = [f"{name}={os.environ[name]}" for name in _ASKED_FOR if name in os.environ]
    return (*made_by, *asked_for) if isinstance(target, CpuTarget) else made_by


@lru_cache(maxsize=64)
def _facts(target: Target) -> str:
    return repr(target)


def _maker(target: Target) -> str:
    return digest_of(*maker_of(target))[:16]


def digest_of(*parts: str) -> str:
    """The sha256 (hex) of texts, each with its length."""
    texts = [part.encode() for part in parts]
    return hashlib.sha256(b"".join([len(text).to_bytes(8, "little") + text for text in texts])).hexdigest()


def _youngest_first(folders: list[Path]) -> list[Path]:
    dated = []
    with contextlib.suppress(OSError):
        for path in [path for folder in folders for path in folder.glob("*.plan")]:
            with contextlib.suppress(OSError):
                dated.append((path.stat().st_mtime_ns, path))
    return [path for _, path in sorted(dated, reverse=True)]


def _load(file: str, cache: ArtifactCache, target: Target, *, stale: bool) -> HeldPlan | None:
    try:
        data = read(file, own=True)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        cache.tell("plan %s cannot be read (%s); it counts as missing", file, error)
        return None
    try:
        payload = _unsealed(file, data)
        if stale:
            check_header(payload)
        serial = read_head(payload)
        if stale:
            _ = serial.plan  # of another version it may be, or break a rule of today
            if serial.withdrawn:
                raise PlanError(f"its kernels compute wrong numbers: {serial.withdrawn}")
    except PlanError as error:
        _log.warning("plan %s cannot be used (%s); it counts as missing", file, error)
        return None
    _log.debug("cache hit: %s", file)
    return with_artifacts(serial, cache.find, target, stale=stale)


def with_artifacts(
    serial: Serial, find: Callable[[str], Artifact | None], target: Target, *, stale: bool
) -> HeldPlan | None:
    """A plan with its artifacts, which ``find`` gives; None if one is missing, damaged, or for another machine."""
    held = []
    for digest in serial.artifacts:
        artifact = find(digest)
        if artifact is None:
            return None
        reason = why_it_cannot_run(artifact.data, target)
        if reason is not None:
            _log.warning("cache entry %s is for another machine (%s); it counts as missing", artifact.file, reason)
            return None
        held.append(artifact)
    return HeldPlan(serial, tuple(held), stale)


def plan_in(path: Path, data: bytes) -> Plan:
    """The plan in a file of the cache; ``PlanError`` unless every byte is what was written under this name."""
    return decode(_unsealed(str(path), data))


def _unsealed(file: str, data: bytes) -> bytes:
    """The serialised plan in a file that lies under its own name."""
    folder, name = os.path.split(file)
    payload = unbind(f"plans/{os.path.basename(folder)}/{name}", data)
    if payload is None:
        raise PlanError("it is damaged")
    return payload
