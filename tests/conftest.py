"""Skips the tests whose needs are not here (``needs``), and fails a run in which another test was skipped.

Its folder is where tests find the modules that they share (``torch_answer``, ``levels``).
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter

import pytest

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

# Tests start hundreds of Python processes, and without files of bytecode each compiles all modules that it imports.
# Where such files are not wanted beside the sources, they lie in a folder of this run.
if sys.dont_write_bytecode:
    sys.dont_write_bytecode, sys.pycache_prefix = False, tempfile.mkdtemp(prefix="tilesmith-bytecode-")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix  # of workers and their children
    atexit.register(shutil.rmtree, sys.pycache_prefix, ignore_errors=True)

# After a product the threads of NumPy's BLAS wait busily on the core of the other worker.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Else each process that compiles with TorchInductor tries the compiler on the vectors of this processor first, and
# starts a Python that imports PyTorch for each kind of them: more than the compilation that a test is about.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")

import levels
import needs
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


# What is built once for these files or folders is built in one worker, not in each.
ONE_WORKER = {
    "embed": "embed", "dispatch/test_hit.py": "hit", "dispatch/test_hits.py": "hits",
    "dispatch/test_packages.py": "dispatch-packages",
    "cuda/test_cuda_check.py": "cuda-check", "cuda/test_cuda_library.py": "cuda-library",
    "cuda/test_cuda_machine.py": "machine", "fuzz": "fuzz", "solvers_cuda/test_sm90_scaled.py": "scaled",
    "package/test_index.py": "machine", "package/test_shell_install.py": "machine", "report": "report",
    "runtime/test_library_api.py": "library", "runtime/test_library_programs.py": "library",
    "runtime/test_problem_keys.py": "problem-keys", "runtime/test_reference_in_c.py": "reference-in-c",
    "tune/test_miscompiled.py": "miscompiled", "tune/test_session.py": "session", "fleet/test_dask_fleet.py": "dask",
}  # fmt: skip


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(needs.TESTS):
            parts = item.path.relative_to(needs.TESTS).parts
            if group := ONE_WORKER.get("/".join(parts)) or ONE_WORKER.get(parts[0]):
                item.add_marker(pytest.mark.xdist_group(group))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is made until the tests begin stays, so that no search for garbage pays for it: now, or in a test."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Of two workers that come to a file at once the second waits, and finds the bytecode of the first."""
    if fcntl is None or not isinstance(collector, pytest.Module) or "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    with open(__file__) as own:
        fcntl.flock(own, fcntl.LOCK_EX)
        return (yield)


class Unmet(pytest.Module):
    """A file of tests that cannot even be imported here."""

    def collect(self):
        pytest.skip(needs.reason(needs.of_file(self.path)), allow_module_level=True)


def pytest_pycollect_makemodule(module_path, parent):
    return Unmet.from_parent(parent, path=module_path) if needs.reason(needs.of_file(module_path)) else None


def pytest_runtest_setup(item):
    names = [mark.name.removeprefix(needs.PREFIX) for mark in item.iter_markers() if mark.name.startswith(needs.PREFIX)]
    if reason := needs.reason(tuple(names)):
        pytest.skip(reason)
    if dynamo := sys.modules.get("torch._dynamo"):
        # Shapes that an earlier test gave to the code of, say, nn.Sequential would make a size dynamic in this one.
        dynamo.reset()


def skipped_otherwise(stats) -> list[str]:
    """The tests that were skipped although all that they need is here."""
    return [
        str(each.nodeid) for each in stats.get("skipped", ()) if not str(each.longrepr[2]).startswith("Skipped: needs ")
    ]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session, exitstatus):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus == pytest.ExitCode.OK and reporter is not None and skipped_otherwise(reporter.stats):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter):
    """Tests skipped without a need, and the levels that were run."""
    for name in skipped_otherwise(terminalreporter.stats):
        terminalreporter.write_line(f"SKIPPED though nothing that it needs is missing: {name}")
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
        monkeypatch.setattr(detect, "_tiles_allowed", lambda: True)
        detect._capped_target.cache_clear()

    yield become
    detect._capped_target.cache_clear()
