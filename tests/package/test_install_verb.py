"""``tilesmith package install``, ``installed``, ``uninstall``, ``index``: what they print, and their exit statuses."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from package_samples import MANIFEST, package
from package_server import serving
from tilesmith.cli.main import run
from tilesmith.package.files import write
from tilesmith.package.index import INDEX_FILE
from tilesmith.targets.detect import host_target


@pytest.fixture(autouse=True)
def places(monkeypatch, tmp_path):
    monkeypatch.setenv("TILESMITH_PACKAGE_PATH", str(tmp_path / "installed"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("TILESMITH_LIBCUDA", "/nowhere/libcuda.so")
    monkeypatch.chdir(tmp_path)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def here(monkeypatch):
    """The target of calls on this machine."""
    return host_target(2).name


@pytest.fixture
def shelf(tmp_path, here):
    """A folder with packages for this machine, a larger one and a GPU."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    arch, _, card = here.split(":")
    for target in (here, f"{arch}:64:{card}", "sm_90a:132:h200"):
        manifest = replace(MANIFEST, target=target)
        write(folder / manifest.file_name, package(2, manifest))
    return folder


def said(capsys, *words):
    status = run(["package", *map(str, words)])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_a_shelf(shelf, tmp_path, here, capsys):
    assert said(capsys, "install", "--auto", shelf)[0] == 2  # no index yet
    status, out, _ = said(capsys, "index", shelf)
    assert (status, out) == (0, f"{shelf}/{INDEX_FILE}: 3 packages, not signed\n")
    path = tmp_path / "installed" / replace(MANIFEST, target=here).file_name
    assert said(capsys, "install", "--auto", shelf) == (0, f"{path}: installed, test 3, not signed\n", "")
    found = json.loads(said(capsys, "install", "--auto", shelf, "--json")[1])
    assert found == {
        "file": str(path), "name": "test", "target": here, "counter": 3, "signer": "", "fit": "exact",
        "action": "unchanged",
    }  # fmt: skip
    rows = [json.loads(line) for line in said(capsys, "index", shelf, "--json")[1].splitlines()]
    assert [row["target"] for row in rows] == sorted(row["target"] for row in rows)
    (row,) = [json.loads(line) for line in said(capsys, "installed", "--json")[1].splitlines()]
    assert row == {
        "file": str(path), "name": "test", "target": here, "counter": 3, "bytes": path.stat().st_size, "signer": "",
        "problem": "",
    }  # fmt: skip
    assert str(path) in said(capsys, "installed")[1]
    path.write_bytes(b"damaged")
    status, out, err = said(capsys, "installed")
    assert (status, out) == (1, "")
    assert str(path) in err
    assert said(capsys, "uninstall", "test")[0] == 2  # its header cannot be read: name the file
    assert said(capsys, "uninstall", path.name) == (0, f"{path}: removed\n", "")
    assert said(capsys, "installed") == (0, "", "")


def test_the_nearest_says_so(shelf, here, capsys):
    arch, _, card = here.split(":")
    (shelf / replace(MANIFEST, target=here).file_name).unlink()
    said(capsys, "index", shelf)
    status, out, err = said(capsys, "install", "--auto", shelf)
    assert (status, out) == (2, "")
    assert f"no package is for {here}; the nearest is for {arch}:64:{card}, and `--nearest` takes it" in err
    status, out, err = said(capsys, "install", "--auto", shelf, "--nearest")
    assert status == 0
    assert f"(for {arch}:64:{card}, the nearest to {here})" in out
    assert "calls use it where no package is for exactly their machine" in err
    status, out, err = said(capsys, "install", "--auto", shelf, "--target", "sm_90a:114:h100-pcie")
    assert (status, "for sm_90a:132:h200" in err) == (2, True)
    assert said(capsys, "install", "--auto", shelf, "--target", "any", "-o", "fleet")[1].count("installed, test 3") == 2
    assert said(capsys, "install", "--auto", shelf, "--name", "other")[0] == 2
    assert said(capsys, "uninstall", "test", "-o", "fleet", "--target", "sm_90a:132:h200")[1].count("removed") == 1
    assert said(capsys, "uninstall", "test", "-o", "fleet")[1].count("removed") == 1


def test_urls(shelf, here, capsys):
    said(capsys, "index", shelf)
    with serving() as site:
        site.files = {each.name: each.read_bytes() for each in shelf.iterdir()}
        status, out, err = said(capsys, "install", "--auto", site.address)
        assert (status, out) == (2, "")
        assert "--allow-unsigned" in err
        assert said(capsys, "install", "--auto", site.address, "--allow-unsigned")[0] == 0
        text = site.files[INDEX_FILE]
        site.files[INDEX_FILE] = text + f"signed {'ab' * 32} {'01' * 64}\n".encode()
        status, _, err = said(capsys, "install", "--auto", site.address, "--allow-unsigned")
        assert (status, "did not sign" in err) == (2, True)
        del site.files[INDEX_FILE]
        assert "404" in said(capsys, "install", "--auto", site.address)[2]
        status, out, err = said(capsys, "install", site.url("x.kdb"), site.url("y.kdb"))
        assert (status, out, len(err.splitlines())) == (2, "", 1)


def test_bad_words(shelf, capsys):
    for words in (
        ("install",), ("install", "a.kdb", "--auto", "b"), ("install", "a.kdb", "--name", "b"), ("uninstall",),
        ("install", "a.kdb", "--target", "none:1"), ("install", "a.kdb", "--timeout", "0"), ("index", "none"),
        ("installer", "-o", "x", "--target", "sm_90a"), ("install", "x://y"), ("uninstall", "none"),
    ):  # fmt: skip
        assert said(capsys, *words)[0] == 2, words
