"""Every test has a database of its own; kernels compiled by one serve the others, in all workers of a run. The level of
the CPU stays capped.
"""

import os

import pytest

from tilesmith.dispatch.kept_calls import forget
from tilesmith.env import CPU_LEVEL


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory):
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # of all workers
    (folder / "shared-cache").mkdir(exist_ok=True)
    return folder / "shared-cache"


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path, cache_dir):
    for name in list(os.environ):
        if name.startswith("TILESMITH_") and name != CPU_LEVEL.name:
            monkeypatch.delenv(name)
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(cache_dir))
    monkeypatch.setenv("TILESMITH_DB_PATH", str(tmp_path / "test.db"))
    monkeypatch.setenv("TILESMITH_PACKAGE_PATH", str(tmp_path / "packages"))
    monkeypatch.setenv("TILESMITH_FIND_MODE", "fast")
    monkeypatch.setenv("TILESMITH_NUM_THREADS", "1")
    forget()
    yield
    forget()
