"""Every test here runs against the stand-in for libcuda; one with a GPU is in ``tests/gpu``."""

from __future__ import annotations

import pytest
from cuda_chain import PtxCache, ptx
from stand_in import StandIn, stand_in

from tilesmith.measure import device_check
from tilesmith.toolchain.cache import ArtifactCache


@pytest.fixture
def cuda(monkeypatch) -> StandIn:
    """The stand-in with an empty log; kernels are not executed."""
    found = stand_in()
    monkeypatch.setenv("TILESMITH_LIBCUDA", str(found.path))
    found.executes(False)
    found.leave(64 << 30)
    found.log()
    return found


@pytest.fixture
def emulating(cuda) -> StandIn:
    """The stand-in that runs emulated kernels."""
    cuda.executes(True)
    yield cuda
    cuda.executes(False)


@pytest.fixture
def checking(emulating, monkeypatch) -> StandIn:
    """The stand-in that runs every kernel that the cache builds, such as those that check results."""

    def emulates(kind):
        build = kind.get_or_build

        def emulated(cache, source, target, *more):
            emulating.emulate(source)
            return build(cache, source, target, *more)

        monkeypatch.setattr(kind, "get_or_build", emulated)

    emulates(ArtifactCache)
    emulates(PtxCache)
    monkeypatch.setattr(device_check, "_BLOCKS", 3)
    return emulating


@pytest.fixture
def checking_ptx(checking, monkeypatch) -> StandIn:
    """The same with caches that compile to PTX alone, where nothing asks what is kept under a kernel's key."""

    def built(cache, source, target, *_):
        checking.emulate(source)
        return cache.store(ptx(source, target.nvrtc_arch))

    monkeypatch.setattr(ArtifactCache, "get_or_build", built)
    return checking
