"""A cache folder that a version wrote is kept here, and must be readable for ever, without a compiler too.

It holds a kernel with its key file, the plan of ``CHOICE`` and a cubin. A new format gets a folder of its own beside
it, made with ``ArtifactCache.keep``, ``store`` and ``keep_plan``; none is ever made again.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tilesmith.plan.serial import encode
from tilesmith.targets.cpu import cpu_target
from tilesmith.toolchain.cache import ArtifactCache, read_entry
from tilesmith.toolchain.inventory import inventory
from tilesmith.toolchain.plans import find_plan

STORE = Path(__file__).parent / "stores" / "cache1"
CPU = cpu_target("x86_64-v2", 1)
CHOICE = ("a kept problem", "c_kept", 3, "mr=6 nr=2")
KERNEL = "84351dfc5b8181042c0295d490e6246fb0701667f19a76aacf308c071f9b632e"
CUBIN = "11480aea9cab97036d2e49d4d5678c580bf78c88e845f9c0e93d0093c72dc587"


@pytest.fixture
def cache(tmp_path):
    copy = shutil.copytree(STORE, tmp_path / "cache")
    for path in (copy, *copy.rglob("*")):  # a checkout may let its group write, which a cache must not
        path.chmod(path.stat().st_mode & ~0o022)
    return ArtifactCache(copy)


def test_kernels_are_found(cache):
    assert cache.find(KERNEL).path.read_bytes() == b"what a compiler has made\n"
    assert cache.find(CUBIN).path.suffix == ".cubin"
    (path,) = (cache.directory / "keys").iterdir()
    assert read_entry(path.read_bytes(), path.stem)["digest"] == KERNEL


def test_plans_are_found(cache):
    """Made by another generator, so stale; a machine without a compiler launches it."""
    problem, solver, revision, config = CHOICE
    held = find_plan(cache, problem, solver, revision, config, CPU)
    assert (held.plan.problem, held.plan.solver, held.plan.config) == (problem, solver, config)
    assert encode(held.plan) == held.serial.data
    assert [artifact.digest for artifact in held.artifacts] == [KERNEL]


def test_nothing_counts_as_damaged(cache):
    entries = list(inventory(cache.directory, verify=True))
    assert len(entries) >= 4
    assert not [entry for entry in entries if entry.damage or entry.kind == "foreign"]
