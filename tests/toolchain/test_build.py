"""Compile units: what they hold, what a refusal says."""

from __future__ import annotations

import ctypes
import dataclasses
import importlib.util
import re
from pathlib import Path

import pytest

from tilesmith.errors import CompileError, NoCompilerError
from tilesmith.plan.records import Source
from tilesmith.targets.cpu import CPU_TARGETS
from tilesmith.targets.detect import host_target
from tilesmith.toolchain import compilers
from tilesmith.toolchain.build import build_unit
from tilesmith.toolchain.compilers import command_line, find_compiler
from tilesmith.toolchain.toolchains import unit_text

PRELUDE = "typedef long long ll;\nstatic inline ll twice(ll x) { return 2 * x; }\n"


def answer(symbol: str, value: int, prelude: str = PRELUDE) -> Source:
    return Source("c", symbol, prelude, f"ll {symbol}(void) {{ return twice({value}); }}")


def test_unit_holds_each_text_once():
    a, b = answer("ts_a", 1), answer("ts_b", 2)
    text = unit_text([a, b, a])
    assert text == unit_text([a, b])
    assert text.count("typedef") == 1
    assert text.index("typedef") < text.index("ts_a") < text.index("ts_b")


def test_many_sources_make_one_library(tmp_path):
    out = tmp_path / "unit.so"
    build_unit([answer("ts_a", 1), answer("ts_b", 2), answer("ts_a", 1)], host_target(), out)
    library = ctypes.CDLL(str(out))
    assert (library.ts_a(), library.ts_b()) == (2, 4)
    assert list(tmp_path.iterdir()) == [out]


def test_same_source_makes_the_same_bytes(tmp_path):
    for name in ("one.so", "two.so"):
        build_unit([answer("ts_a", 1)], host_target(), tmp_path / name)
    assert (tmp_path / "one.so").read_bytes() == (tmp_path / "two.so").read_bytes()


def test_refused_source_is_named_and_kept(tmp_path):
    bad = Source("c", "ts_bad", "", "int ts_bad(void) { return missing; }")
    with pytest.raises(CompileError) as caught:
        build_unit([bad], host_target(), tmp_path / "unit.so")
    message = str(caught.value)
    assert "missing" in message
    assert "\n" not in message
    kept = Path(re.search(r"source kept in (.*)\)", message)[1])
    assert kept.read_text() == unit_text([bad])
    kept.unlink()
    assert list(tmp_path.iterdir()) == []


def test_a_compiler_that_takes_too_long_is_ended(tmp_path):
    with pytest.raises(CompileError, match=r"did not end within 0\.0 s"):
        build_unit([answer("ts_a", 1)], host_target(), tmp_path / "unit.so", limit_s=0.0005)
    assert list(tmp_path.iterdir()) == []


def test_other_languages_are_refused(tmp_path):
    with pytest.raises(CompileError, match="cuda"):
        build_unit([Source("cuda", "ts_k", "", "")], host_target(), tmp_path / "unit.so")


def test_no_compiler_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    compilers._find.cache_clear()
    try:
        with pytest.raises(NoCompilerError, match=r"apt install gcc.*pip install ziglang"):
            find_compiler()
        monkeypatch.setenv("CC", "/nonexistent/cc -m64")
        with pytest.raises(NoCompilerError, match="CC='/nonexistent/cc -m64'"):
            find_compiler()
    finally:
        compilers._find.cache_clear()


def test_a_compiler_on_path_that_does_not_run_is_passed_over(monkeypatch, tmp_path):
    monkeypatch.delenv("CC", raising=False)
    (tmp_path / "cc").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "gcc").write_text("#!/bin/sh\necho 'gcc (Test) 99.1'\n")
    for name in ("cc", "gcc"):
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find_compiler()
    assert (found.kind, found.version, found.command) == ("gcc", "gcc (Test) 99.1", (str(tmp_path / "gcc"),))


TILES = """
void ts_tiles(const void *a, const void *b, float *c, long step) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm1" : : "r"(a), "r"(step) : "memory");
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm2" : : "r"(b), "r"(step) : "memory");
  __asm__ volatile("tdpbf16ps %tmm2, %tmm1, %tmm0");
  __asm__ volatile("tilestored %%tmm0, (%0,%1,1)" : : "r"(c), "r"(step) : "memory");
}
"""


@pytest.mark.needs_zig
@pytest.mark.parametrize("by_zig", [False, True])
def test_matrix_tiles_are_compiled(by_zig, tmp_path):
    target = CPU_TARGETS["x86_64-v4-amx"]
    compiler = compilers._zig() if by_zig else compilers.compiler_for(target)
    build_unit([Source("c", "ts_tiles", "", TILES)], target, tmp_path / "unit.so", compiler)
    assert "-DTS_TILES" in compiler.flags(target)


def test_zig_gets_its_own_spelling():
    zig = compilers.Compiler(("python", "-m", "ziglang", "cc"), "zig", "clang version 20")
    line = command_line(zig, CPU_TARGETS["x86_64-v4"], "unit.c", "unit.so")
    assert line[:4] == zig.command
    assert {"-march=x86_64_v4", "-fno-sanitize=all", "-nostdlib", "-shared"} <= set(line)
    assert line[line.index("-target") + 1] == "x86_64-linux-gnu"
    assert not any(flag.startswith("-march") for flag in zig.flags(CPU_TARGETS["aarch64"]))


@pytest.mark.needs_zig
@pytest.mark.parametrize("arch", sorted(CPU_TARGETS))
def test_zig_compiles_for_every_arch(arch, tmp_path):
    zig = compilers._probe((compilers.sys.executable, "-m", "ziglang", "cc"))
    assert zig is not None
    build_unit([answer("ts_a", 1)], dataclasses.replace(CPU_TARGETS[arch]), tmp_path / "unit.so", zig)
    assert (tmp_path / "unit.so").read_bytes().startswith(b"\x7fELF")
