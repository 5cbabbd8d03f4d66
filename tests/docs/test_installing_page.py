"""The commands of the page about installing packages run, as a shell runs them, against a web server of packages."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages import DOCS
from test_examples import blocks

from package_server import serving
from tilesmith.package.form import SIGNED, identity, with_signature
from tilesmith.package.index import INDEX_FILE, index_of, write_index
from tilesmith.package.keys import PublicKey, hold

PAGE = DOCS / "guide" / "installing-packages.md"
SERVER = "https://packages.example.com"
# ts-query is called a few times: optimizing it takes longer than all calls.
COMPILER = """#!/bin/sh
case "$*" in *tools/ts_*) set -- "$@" -O0 ;; esac
exec cc "$@"
"""


def shell(script):
    done = subprocess.run(["bash", "-c", f"set -e\n{script}"], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """What the server has: packages for this machine, signed by a key that it trusts, and their index."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    monkeypatch.delenv("TILESMITH_NUM_THREADS")  # ts-query counts all cores
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "cc").write_text(COMPILER)
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("CC", str(tmp_path / "cc"))
    text = PAGE.read_text()
    for name, content in re.findall(r'^```text title="([^"]+)"\n(.*?)^```', text, re.M | re.S):
        (tmp_path / name).write_text(content)
    shell("tilesmith package build problems.txt --name resnet --counter 1 -o made")
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes_raw()
    hold(PublicKey("maker", public))
    (path,) = (tmp_path / "made").iterdir()
    data = path.read_bytes()
    path.unlink()
    data = with_signature(data, public, key.sign(SIGNED + identity(data)))
    (tmp_path / "made" / "resnet-x86_64-v4-2-zen5.kdb").write_bytes(data)
    write_index(tmp_path / "made", index_of(tmp_path / "made"))
    return {each.name: each.read_bytes() for each in (tmp_path / "made").iterdir()}


def test_commands(shelf, tmp_path):
    found = blocks(PAGE.read_text(), "console")
    with serving() as site:
        site.files = shelf
        printed = []
        for block in found:
            script = "\n".join(line.removeprefix("$ ") for line in block.splitlines())
            printed.append(shell(script.replace(SERVER, site.address)))
    assert len(found) == 8
    first, offer, share, gone, _, again, stick, url = printed
    assert re.findall(r": (\w+), resnet 1, signed by maker", first) == ["installed", "unchanged"]
    assert re.findall(r": (\w+), resnet 1, signed by maker", offer + share) == []  # built here, and not signed
    assert re.findall(r": (unchanged|installed), resnet 1", offer + share) == ["unchanged", "installed"]
    assert "removed" in gone
    assert "installed, resnet 1, signed by maker" in again
    assert re.findall(r": (\w+), resnet 1, signed by maker", stick + url) == ["unchanged", "installed", "unchanged"]
    assert INDEX_FILE in {each.name for each in (tmp_path / "stick").iterdir()}
    assert [each.suffix for each in (tmp_path / "kernels").iterdir() if each.is_file()] == [".kdb"]
