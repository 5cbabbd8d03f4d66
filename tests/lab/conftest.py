"""Every test has results, jobs and a database of its own."""

import pytest

from fresh_home import cache_dir, home

__all__ = ["cache_dir", "home", "place"]


@pytest.fixture
def place(home, monkeypatch, tmp_path):
    folder = tmp_path / "lab"
    monkeypatch.setenv("TILESMITH_LAB_DIR", str(folder))
    return folder
