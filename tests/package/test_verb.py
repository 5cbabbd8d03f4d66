"""``tilesmith package``: what it prints, and its exit statuses."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from package_samples import MANIFEST, TARGET, package
from tilesmith.cli.main import run
from tilesmith.package.files import PackageFile, write

GEMM = "gemm1;m=8;n=8;k=8;batch=1;a=fp32,n;b=fp32,n;c=fp32;acc=fp32;alpha=1.0;beta=0.0"


@pytest.fixture
def path(tmp_path):
    write(tmp_path / "a.kdb", package(3))
    return str(tmp_path / "a.kdb")


def said(capsys, *words):
    status = run(["package", *words])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_info_and_list(path, capsys):
    status, out, _ = said(capsys, "info", path)
    assert status == 0
    assert dict(line.split(None, 1) for line in out.splitlines() if line)["problems"] == "3"
    found = json.loads(said(capsys, "info", path, "--json")[1])
    counts = [found[name] for name in ("problems", "plans", "binaries", "find_rows", "perf_rows", "counter")]
    assert counts == [3, 6, 2, 3, 6, 3]
    assert (found["signed"], found["targets"], found["target"]) == ("", [TARGET], TARGET)
    rows = [json.loads(line) for line in said(capsys, "list", path, "--json")[1].splitlines()]
    assert len(rows) == 6 + 2 + 3 + 3
    assert rows[0] | {"digest": ""} == {
        "file": path, "kind": "plan", "problem": "conv1;fwd;n=0", "target": TARGET, "rank": 0, "solver": "c_dense",
        "config": "mr=6", "revision": 1, "time_us": 10.0, "rows": 0, "bytes": rows[0]["bytes"],
        "stored": rows[0]["stored"], "digest": "",
    }  # fmt: skip
    status, out, _ = said(capsys, "list", path, "--kind", "perf")
    assert (status, len(out.splitlines())) == (0, 1 + 3)


def test_verify(path, tmp_path, capsys):
    assert said(capsys, "verify", path) == (0, f"{path}: 14 entries, whole, not signed\n", "")
    data = bytearray((tmp_path / "a.kdb").read_bytes())
    data[-9] ^= 4
    (tmp_path / "b.kdb").write_bytes(data)
    status, out, err = said(capsys, "verify", path, str(tmp_path / "b.kdb"), str(tmp_path))
    assert (status, out) == (1, f"{path}: 14 entries, whole, not signed\n")
    assert err.splitlines() == [
        f"tilesmith: {tmp_path}/b.kdb: entry 13 of the package is damaged: its checksum is wrong",
        f"tilesmith: package {tmp_path} is not a file",
    ]
    lines = said(capsys, "verify", path, str(tmp_path / "b.kdb"), "--json")[1].splitlines()
    assert [bool(json.loads(line)["damage"]) for line in lines] == [False, True]
    for verb in ("info", "list"):  # they read what is there, and stop at the damage
        assert said(capsys, verb, str(tmp_path / "b.kdb"))[0] == 2


def test_diff_merge_remove(path, tmp_path, capsys):
    other, out = str(tmp_path / "b.kdb"), str(tmp_path / "out.kdb")
    write(other, package(4, replace(MANIFEST, counter=5)))
    assert said(capsys, "diff", path, path) == (0, "", "")
    status, told, _ = said(capsys, "diff", path, other)
    assert (status, len(told.splitlines())) == (1, 1 + 5)
    status, told, err = said(capsys, "merge", path, other, "-o", out)
    assert (status, "not signed" in err) == (0, True)
    assert said(capsys, "diff", other, out)[0] == 0
    assert said(capsys, "remove", out, "--kind", "perf", "--kind", "find", "-o", out)[0] == 0
    assert {entry.kind.name for entry in PackageFile(out).entries()} == {"PLAN", "BINARY"}
    assert said(capsys, "remove", out, "--target", "sm_80:108:a100", "-o", out)[0] == 1
    assert said(capsys, "remove", out, GEMM, "-o", out)[0] == 1
    assert said(capsys, "remove", out, "-o", out)[0] == 2
    assert said(capsys, "merge", path, "-o", str(tmp_path / "no" / "x.kdb"))[0] == 2
    assert sorted(each.name for each in tmp_path.iterdir() if each.suffix) == ["a.kdb", "b.kdb", "out.kdb"]
