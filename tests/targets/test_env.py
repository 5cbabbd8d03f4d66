"""Environment variables: defaults, values, and one-line refusals that name variable, value and rule."""

import os
import re

import pytest

from tilesmith import env
from tilesmith.errors import EnvironmentValueError


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    for name in list(os.environ):
        if name.startswith("TILESMITH_"):
            monkeypatch.delenv(name)


def test_defaults():
    assert env.FIND_MODE.get() == "hybrid"
    assert env.CACHE_ON.get() is True
    assert env.LOG_CMD.get() is False
    assert env.ONLY_SOLVER.get() == ""
    assert env.NUM_THREADS.get() is None
    assert env.TUNING_SPEC_PATH.get() is None
    assert len(env.DB_PATH.get()) == 1


def test_values_are_read_at_use(monkeypatch):
    for mode in env.FIND_MODES:
        monkeypatch.setenv("TILESMITH_FIND_MODE", mode.upper())
        assert env.FIND_MODE.get() == mode
    monkeypatch.setenv("TILESMITH_CACHE_ON", "off")
    assert env.CACHE_ON.get() is False
    monkeypatch.setenv("TILESMITH_DB_PATH", os.pathsep.join(["/a.db", "https://host/b.db", "/c.db"]))
    assert env.DB_PATH.get() == ("/a.db", "https://host/b.db", "/c.db")
    monkeypatch.setenv("TILESMITH_CACHE_DIR", "~/x")
    assert env.CACHE_DIR.get().is_absolute()


@pytest.mark.parametrize(
    "layers",
    [
        ("http://127.0.0.1:8080/team.db", "/c.db"),
        ("/a.db", "https://host:443/b.db", "https://user:word@host:443/b.db", "c.db"),
        ("http://[::1]:80/b.db", "http://[::1]/b.db", "file:///srv/b.db"),
        ("http://host:80", "http://host", "80.db"),
        ("https://host/b.db", "8080/c.db"),
        ("~/a b.db", "s3://bucket/key.db", "C"),
    ],
    ids=lambda layers: layers[0],
)
def test_colons_of_urls_part_no_layers(monkeypatch, layers):
    monkeypatch.setenv("TILESMITH_DB_PATH", ":".join(layers))
    assert env.DB_PATH.get() == layers


@pytest.mark.parametrize("variable", env.VARIABLES, ids=lambda v: v.name)
def test_empty_is_the_default(monkeypatch, variable):
    monkeypatch.setenv(variable.name, " ")
    assert variable.get() == variable.default()
    assert not variable.is_set
    assert variable.meaning
    assert variable.rule


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FIND_MODE", "quick"),
        ("CACHE_ON", "2"),
        ("LOG", "loud"),
        ("LOG_CMD", "maybe"),
        ("NUM_THREADS", "0"),
        ("NUM_THREADS", "-1"),
        ("NUM_THREADS", "two"),
        ("NUM_THREADS", "5000"),
        ("ONLY_SOLVER", "a b"),
        ("CACHE_DIR", __file__),
    ],
)
def test_bad_values_are_refused(monkeypatch, name, value):
    monkeypatch.setenv("TILESMITH_" + name, value)
    with pytest.raises(EnvironmentValueError, match=re.escape(repr(value))) as caught:
        env.check_all()
    assert str(caught.value).startswith("TILESMITH_" + name)
    assert "\n" not in str(caught.value)


def test_misspelt_names_are_found(monkeypatch):
    monkeypatch.setenv("TILESMITH_FINDMODE", "fast")
    assert env.unknown_names() == ("TILESMITH_FINDMODE",)


@pytest.mark.needs_linux
def test_the_users_folders_follow_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("TILESMITH_CACHE_DIR", raising=False)
    monkeypatch.delenv("TILESMITH_DB_PATH", raising=False)
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for home in ("first", "second", "first"):
        monkeypatch.setenv("HOME", str(tmp_path / home))
        assert tmp_path / home / ".cache" / "tilesmith" == env.CACHE_DIR.get()
        assert env.DB_PATH.get() == (str(tmp_path / home / ".local/share/tilesmith/tilesmith.db"),)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "d"))
    assert env.CACHE_DIR.get() == tmp_path / "c" / "tilesmith"
    assert env.DB_PATH.get() == (str(tmp_path / "d" / "tilesmith" / "tilesmith.db"),)
