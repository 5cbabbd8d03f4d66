"""A database and a cache of each test's own, and libraries that are built once for all tests."""

import os

import pytest
from embedded import REAL, SMALL, Built, built, quick, run


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TILESMITH_DB_PATH", str(tmp_path / "test.db"))
    monkeypatch.setenv("TILESMITH_NUM_THREADS", "2")
    monkeypatch.delenv("TILESMITH_FIND_MODE", raising=False)


def _in(folder, *arguments) -> Built:
    names = {"TILESMITH_CACHE_DIR": str(folder / "cache"), "TILESMITH_DB_PATH": str(folder / "test.db")}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in names.items():
            patch.setenv(name, value)
        return built(folder, *arguments)


@pytest.fixture(scope="session")
def real(tmp_path_factory) -> Built:
    """``deconv``: 20 real problems for two threads of this machine, static and shared."""
    return _in(tmp_path_factory.mktemp("real"), "deconv", REAL, ("--static", "--shared"))


@pytest.fixture(scope="session")
def small(tmp_path_factory) -> Built:
    """``other``: four of them as a project that is not built yet."""
    return _in(tmp_path_factory.mktemp("small"), "other", SMALL, ("--sources-only",))


@pytest.fixture(scope="session")
def made_by_cmake(small, tmp_path_factory):
    """The folder in which CMake built ``other`` as a shared library."""
    place, prefix = tmp_path_factory.mktemp("cmake"), tmp_path_factory.mktemp("prefix")
    options = ("-DBUILD_SHARED_LIBS=ON", f"-DCMAKE_C_COMPILER={quick(place)}", f"-DCMAKE_INSTALL_PREFIX={prefix}")
    run("cmake", "-S", small.folder, "-B", place, *options)
    run("cmake", "--build", place, "-j", str(os.cpu_count()))
    return place, prefix


@pytest.fixture(scope="session")
def installed(made_by_cmake):
    """``other`` as a shared library, tested and installed by CMake."""
    place, prefix = made_by_cmake
    run("ctest", "--test-dir", place, "--output-on-failure")
    run("cmake", "--install", place)
    return prefix
