"""Packages for CPUs of another instruction set than this machine's."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import struct

import pytest

from tilesmith.cli.main import run
from tilesmith.package.build import build_target
from tilesmith.package.files import PackageFile
from tilesmith.package.records import Kind
from tilesmith.plan.records import Launch
from tilesmith.plan.serial import decode
from tilesmith.targets.cpu import cpu_target
from tilesmith.toolchain import compilers

PROBLEMS = (
    "conv -n 1 -c 16 -H 14 -W 14 -k 16 -y 3 -x 3 -p 1 -q 1 -F 1\n" "conv -n 1 -c 24 -H 14 -W 14 -k 16 -y 1 -x 1 -F 1\n"
)
FOREIGN = "aarch64:4:neoverse-n1"
MACHINE_AARCH64 = 183
# fmla vd.4s, vn.4s, vm.4s and fmla vd.4s, vn.4s, vm.s[i]: the bits that say so, and their mask.
FMLA = ((0x4E20CC00, 0xFFE0FC00), (0x4F801000, 0xFFC0F400))

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="needs x86-64: aarch64 is this machine's own")


def hide_cross_compilers(monkeypatch):
    which = shutil.which
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name, **at: None if name.startswith("aarch64-") else which(name, **at))


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Builds a package in a cache of its own and returns its path."""
    (tmp_path / "board.txt").write_text(PROBLEMS)

    def one(name):
        monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / f"cache-{name}"))
        out = tmp_path / name
        assert run(["package", "build", str(tmp_path / "board.txt"), "--target", FOREIGN, "-o", str(out)]) == 0
        return out / "board-aarch64-4-neoverse-n1.kdb"

    return one


@pytest.mark.needs_zig
def test_aarch64_packages_from_zig(build, monkeypatch, tmp_path):
    hide_cross_compilers(monkeypatch)
    first = build("first")
    # Elsewhere, without a home: the same bytes, and nothing outside the temporary folder is written.
    monkeypatch.setenv("HOME", str(tmp_path / "no" / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert build("second").read_bytes() == first.read_bytes()
    assert not (tmp_path / "no").exists()
    package = PackageFile(first)
    package.verify()
    plans = [decode(package.read(index)) for index, each in enumerate(package.entries()) if each.kind == Kind.PLAN]
    binaries = [package.read(index) for index, each in enumerate(package.entries()) if each.kind == Kind.BINARY]
    assert len(plans) == 2
    assert {plan.target for plan in plans} == {FOREIGN}
    symbols = {step.symbol for plan in plans for step in (*plan.prepare, *plan.run) if isinstance(step, Launch)}
    fused = 0
    for binary in binaries:
        assert binary[:5] == b"\x7fELF\x02"
        assert struct.unpack_from("<H", binary, 18) == (MACHINE_AARCH64,)
        assert str(tmp_path).encode() not in binary
        words = struct.unpack(f"<{len(binary) // 4}I", binary[: len(binary) // 4 * 4])
        fused += sum(any(word & mask == bits for bits, mask in FMLA) for word in words)
        symbols -= {symbol for symbol in symbols if symbol.encode() + b"\0" in binary}
    assert not symbols
    assert fused > 50


def test_without_a_compiler_one_message_says_what_to_install(tmp_path, monkeypatch, capsys):
    (tmp_path / "board.txt").write_text(PROBLEMS)
    hide_cross_compilers(monkeypatch)
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *at: None if name == "ziglang" else found(name, *at))
    compilers._find.cache_clear()
    try:
        status = run(
            ["package", "build", str(tmp_path / "board.txt"), "--target", FOREIGN, "-o", str(tmp_path / "out")]
        )
    finally:
        compilers._find.cache_clear()
    error = capsys.readouterr().err
    assert status == 2
    assert error.count("no compiler here makes aarch64 binaries; install one") == 1
    assert "apt install gcc-aarch64-linux-gnu" in error
    assert "pip install ziglang" in error
    assert not (tmp_path / "out").exists()


@pytest.mark.needs_compiler
def test_a_cc_that_does_not_run_is_not_passed_over(tmp_path, monkeypatch, capsys):
    (tmp_path / "board.txt").write_text(PROBLEMS)
    monkeypatch.setenv("CC", f"{tmp_path}/cc")
    assert run(["package", "build", str(tmp_path / "board.txt"), "--target", FOREIGN, "-o", str(tmp_path / "out")]) == 2
    assert f"CC='{tmp_path}/cc' does not run" in capsys.readouterr().err
    (tmp_path / "cc").write_text("#!/bin/sh\n[ $1 = -dumpmachine ] && echo aarch64-linux-gnu || echo 'gcc 12'\n")
    os.chmod(tmp_path / "cc", 0o755)
    compilers._find.cache_clear()
    assert compilers.compiler_for(cpu_target("aarch64")).command == (f"{tmp_path}/cc",)


@pytest.mark.parametrize(
    ("target", "named"),
    [("sm_90a:132:h100", "h100-80gb-hbm3, h100-pcie, h100-nvl"), ("sm_90a:132:h100-80gb-hbm3", ""),
     ("sm_90a:132:generic", ""), ("x86_64-v3:2", "")],
)  # fmt: skip
def test_a_card_that_is_short_for_several_is_told(target, named, caplog):
    assert build_target(target).name.startswith(target)
    assert [record.getMessage().endswith(f"called alike: {named}") for record in caplog.records] == [True] * bool(named)
