"""Every command and every snippet of the guide runs, on the guide's own files."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from embedded import HERE, program, quick, run

ROOT = HERE.parents[1]
GUIDE = (ROOT / "docs" / "guide" / "c-library.md").read_text()
TITLED = re.compile(r'^```(\w+) title="([^"]+)"\n(.*?)^```', re.M | re.S)
AARCH64 = b"\xb7\0"  # of the head of an ELF file: its processor


def blocks(language):
    return [text.strip() for text in re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.M | re.S)]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the files of the guide and the library of its first block."""
    folder = tmp_path_factory.mktemp("guide")
    for _, name, text in TITLED.findall(GUIDE):
        (folder / name).write_text(text)
    # What optimising does is seen where the libraries of `real` run.
    shell(folder, blocks("sh")[0], CC=str(quick(folder)))
    return folder


def shell(folder: Path, text: str, **names: str) -> str:
    """The commands of a block, where `tilesmith` and `cc` are those of the tests."""
    commands = f'set -e\ntilesmith() {{ {shlex.quote(sys.executable)} -m tilesmith "$@"; }}\n{text}\n'
    home = {"TILESMITH_CACHE_DIR": str(folder / "cache"), "TILESMITH_DB_PATH": str(folder / "test.db")}
    return run("sh", "-c", commands, cwd=folder, env=dict(os.environ) | home | names)


def test_every_shell_block_is_tested():
    begins = [text.split()[0] for text in blocks("sh")]
    assert begins == ["tilesmith", "tilesmith", "cc", "tilesmith", "cmake"]
    (first,) = blocks("console")
    assert first.replace("$ ", "").splitlines() == blocks("sh")[0].splitlines()[:2]
    assert [text.split()[0] for text in blocks("cmake")] == ["find_package(deconv", "execute_process(COMMAND"]


def test_make_and_select(place):
    assert (place / "deconv" / "lib" / "deconv.a").exists()
    shell(place, blocks("sh")[1] + " --sources-only")
    assert len(list((place / "deconv-small" / "src" / "kernels").rglob("*.c"))) > 0


@pytest.mark.needs_cmake
def test_programs(place):
    where = {"PKG_CONFIG_PATH": str(place / "deconv" / "lib" / "pkgconfig")}
    shell(place, blocks("sh")[2] + "\n./main > main.txt", **where)
    assert (place / "main.txt").read_text() == "16\n"
    shell(place, "c++ -std=c++17 -Wall -Wextra server.cpp $(pkg-config --cflags --libs deconv) -o server", **where)
    assert run(place / "server") == "done\n"


@pytest.mark.needs_zig
def test_the_board(place):
    program(place / "zig" / "zig", f"{shlex.quote(sys.executable)} -m ziglang")
    path = {"PATH": f"{place / 'zig'}:{os.environ['PATH']}"}
    write, make = blocks("sh")[3].splitlines()
    shell(place, write, **path)
    # The library of the first block has the same runtime for aarch64: of that, one file is compiled again.
    runtime, objects = Path("src", "runtime"), Path("build", "aarch64", "runtime")
    texts = [
        {each.name: each.read_bytes() for each in (place / name / runtime).iterdir()} for name in ("deconv", "board")
    ]
    assert texts[0] == texts[1]
    shutil.copytree(
        place / "deconv" / objects, place / "board" / objects, copy_function=shutil.copy
    )  # newer than texts
    (place / "board" / objects / "ts_run.o").unlink()
    shell(place, make, **path)
    assert list((place / "board" / "src" / "kernels" / "aarch64").iterdir())
    head = (place / "board" / "bin" / "aarch64" / "deconv_self_test").read_bytes()[:20]
    assert (head[:4], head[18:]) == (b"\x7fELF", AARCH64)
    objects = list((place / "board" / "build").rglob("*.o"))
    # Tables to unwind the stack, which zig adds unless it is told twice.
    assert objects
    assert not [path.name for path in objects if b".eh_frame" in path.read_bytes()]


@pytest.mark.needs_cmake
def test_cmake_makes_the_library(place):
    """The guide's CMake project, and the options for those who come from MIOpen's recipe."""
    program(place / "bin" / "tilesmith", f"{shlex.quote(sys.executable)} -m tilesmith")
    path = {"PATH": f"{place / 'bin'}:{os.environ['PATH']}"}
    head = "cmake_minimum_required(VERSION 3.16)\nproject(p LANGUAGES C)\n"
    (place / "found").mkdir()
    (place / "found" / "CMakeLists.txt").write_text(f"{head}add_executable(main ../main.c)\n{blocks('cmake')[0]}")
    shell(place, "cmake -S found -B found/made -DCMAKE_PREFIX_PATH=$PWD/deconv")
    assert shell(place, "cmake --build found/made >&2 && found/made/main") == "16\n"
    (place / "CMakeLists.txt").write_text(head + blocks("cmake")[1])
    options = f"-DCMAKE_C_COMPILER={quick(place)} -DDECONV_PROGRAMS=OFF"
    shell(place, f"cmake -S . -B cmake-build {options} && cmake --build cmake-build -j2 && ./cmake-build/main", **path)
    (place / "tilesmith").symlink_to(ROOT)
    shell(place, blocks("sh")[4].replace(" -B build ", f" -B build {options} "), **path)
    assert (place / "build" / "deconv" / "include" / "deconv.h").exists()
    assert list((place / "build").rglob("deconv.a"))
