"""Every test has a database and a folder of its own for what workers keep."""

import pytest

from fresh_home import cache_dir, home

__all__ = ["cache_dir", "home"]


@pytest.fixture(autouse=True)
def fleet_folder(home, monkeypatch, tmp_path):
    folder = tmp_path / "fleet"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("TILESMITH_FLEET_DIR", str(folder))
    return folder
