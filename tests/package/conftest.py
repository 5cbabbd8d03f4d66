"""Every test has a database and a cache of its own."""

import pytest


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TILESMITH_DB_PATH", str(tmp_path / "test.db"))
    monkeypatch.setenv("TILESMITH_PACKAGE_PATH", str(tmp_path / "packages"))
    monkeypatch.setenv("TILESMITH_NUM_THREADS", "2")
