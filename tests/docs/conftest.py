"""Each page begins with a database and a cache of its own, one thread, and choices by prediction: fast."""

import os

import pytest

from tilesmith.dispatch.kept_calls import forget
from tilesmith.env import CPU_LEVEL


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.startswith("TILESMITH_") and name != CPU_LEVEL.name:
            monkeypatch.delenv(name)
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TILESMITH_DB_PATH", str(tmp_path / "tilesmith.db"))
    monkeypatch.setenv("TILESMITH_LAB_DIR", str(tmp_path / "lab"))
    monkeypatch.setenv("TILESMITH_PACKAGE_PATH", str(tmp_path / "packages"))
    monkeypatch.setenv("TILESMITH_FIND_MODE", "fast")
    monkeypatch.setenv("TILESMITH_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    forget()
    yield
    forget()
