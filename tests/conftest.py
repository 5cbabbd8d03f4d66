"""Its folder is where tests find what they share (``torch_answer``, ``levels``)."""

from __future__ import annotations

import contextlib
import signal
from collections import Counter

import pytest

import levels
from tilesmith.env import CPU_LEVEL
from tilesmith.targets import detect

# A shell starts background jobs with SIGINT ignored, and children inherit it; the tests that interrupt need it.
with contextlib.suppress(ValueError):  # not in the main thread
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(params=levels.HERE, ids=lambda target: target.arch)
def level(request, record_property):
    """A target that this processor runs; the test runs once for each of them."""
    record_property("level", request.param.arch)
    return request.param


def pytest_terminal_summary(terminalreporter):
    """The levels that were run, for who reads the output of ``make test``."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, ())]
    ran = Counter(value for report in reports for name, value in report.user_properties if name == "level")
    if ran:
        terminalreporter.write_line(levels.told(ran))


@pytest.fixture
def processor(monkeypatch):
    """``processor(arch)``: as if this machine had that arch, and caches of the sizes given (0: unknown); no cap."""
    monkeypatch.delenv(CPU_LEVEL.name, raising=False)

    def become(arch, *caches):
        monkeypatch.setattr(detect, "_recalled", detect.HostCpu(arch, "generic", *(caches or (0, 0, 0))))
        detect._capped_target.cache_clear()

    yield become
    detect._capped_target.cache_clear()
