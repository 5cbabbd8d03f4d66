"""The built library of 20 real problems: its bits, its names, what it opens, and how programs link it."""

from __future__ import annotations

import re
import shutil

import pytest
from embedded import HERE, REAL, TARGET, linked, memory, operands, run

from tilesmith.dispatch.locations import open_cache, open_databases
from tilesmith.dispatch.request import Request
from tilesmith.dispatch.resolve import resolve
from tilesmith.package.embed.programs import operand_of
from tilesmith.runtime.executable import Executable
from tilesmith.toolchain.compilers import find_compiler

FIELDS = ("x", "w", "y", "bias", "residual", "scale")
RIGHT = "20 problems right, 0 wrong, 0 ran and were not compared, 0 without a kernel for this machine"


def written(library, path):
    """The operands of each problem in a file for ``run_problems``."""
    with open(path, "wb") as file:
        for key in library.keys:
            signature, slots, given = operands(key)
            by_field = {operand_of(s, signature): (s, a) for s, a in zip(slots, given, strict=True)}
            for field in FIELDS:
                if field in by_field:
                    slot, array = by_field[field]
                    file.write(memory(array, slot.nbytes))
    return path


def of_python(key):
    """What Python makes of the result's memory with the plan that dispatch chooses for the same target."""
    signature, slots, given = operands(key)
    found = resolve(Request(signature, TARGET, "fast", open_databases(readonly=True), open_cache()))
    executable = Executable(found.built.serial, found.built.artifacts)
    executable.run(given, executable.prepare(given[1]) if executable.prepares else None)
    return memory(given[-1], slots[-1].nbytes)


def test_results_have_the_bits_of_python(real, tmp_path, monkeypatch):
    """Linked statically against the C library alone, with 16 callers at a time and an empty environment."""
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(real.folder.parent / "cache"))  # Python's kernels are there already
    program = linked(real, "run_problems.c", tmp_path / "run_problems", "-static", "-Wl,--no-warnings")
    out = tmp_path / "out"
    run(program, written(real, tmp_path / "in"), out, 16, env={})
    results = out.read_bytes()
    for key in real.keys:
        wanted = of_python(key)
        assert results[: len(wanted)] == wanted, key
        results = results[len(wanted) :]
    assert not results


def test_each_result_is_near_the_reference(real):
    assert RIGHT in run(real.folder / "bin" / "deconv_self_test", env={})
    assert "solutions" not in run(real.folder / "bin" / "deconv_sample", env={})


@pytest.mark.needs_strace
def test_nothing_is_written_and_nothing_else_runs(real, tmp_path):
    log = tmp_path / "log"
    run("strace", "-f", "-o", log, real.folder / "bin" / "deconv_self_test")
    calls = re.findall(r"^\d+ +(\w+)\((.*)$", log.read_text(), re.M)
    assert sum(name in ("execve", "execveat", "fork", "vfork") for name, _ in calls) == 1  # strace's own
    opened = [rest for name, rest in calls if name in ("open", "openat", "openat2", "creat", "memfd_create")]
    assert opened
    assert not [rest for rest in opened if re.search(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|MFD_", rest)]
    writes = {
        rest.partition(",")[0] for name, rest in calls if name in ("write", "writev", "pwrite64", "unlink", "mkdir")
    }
    assert writes <= {"1"}  # what the self-test prints


@pytest.mark.needs_linux
def test_it_needs_the_c_library_alone(real, tmp_path):
    shared = linked(real, "run_problems.c", tmp_path / "shared", f"-Wl,-rpath,{real.folder}/lib", kind="so")
    for file in (real.folder / "bin" / "deconv_self_test", shared, real.folder / "lib" / "deconv.so"):
        needed = set(re.findall(r"(lib\w+)[\w.-]*\.so|(deconv)\.so\.1", run("ldd", file)))
        names = {first or second for first, second in needed}
        assert names <= {"libc", "libm", "libpthread", "libdl", "deconv"}, names
    assert "soname" in run("objdump", "-p", real.folder / "lib" / "deconv.so").lower()
    run(shared, written(real, tmp_path / "in"), tmp_path / "out", 2, env={})


def test_its_names_begin_with_its_own(real):
    declared = set(
        re.findall(r"^DECONV_API [\w *]*?\b(deconv_\w+)\(", (real.folder / "include" / "deconv.h").read_text(), re.M)
    )
    assert len(declared) >= 17
    linked_names = run("nm", "-g", "--defined-only", real.folder / "lib" / "deconv.a")
    names = {line.split()[-1] for line in linked_names.splitlines() if len(line.split()) == 3}
    assert {name for name in names if not name.startswith("deconv_priv_")} == declared
    exported = run("nm", "-D", "--defined-only", real.folder / "lib" / "deconv.so")
    assert {line.split()[-1] for line in exported.splitlines()} == declared


def test_a_kernel_is_small(real):
    """A library has the runtime once; each further kernel adds less than 60 KB."""
    kernels = list((real.folder / "build").rglob("kernels/*/*.o"))
    assert len(kernels) > len(REAL)
    assert max(path.stat().st_size for path in kernels) < 60_000


@pytest.mark.needs_cmake
def test_cmake_and_pkg_config(real, small, installed, tmp_path):
    """C++ programs of two libraries: one as make left it, one that CMake built and installed."""
    text = (HERE / "consumer.cpp").read_text()
    for library, prefix in ((real, real.folder), (small, installed)):
        place = tmp_path / library.name
        place.mkdir()
        (place / "main.cpp").write_text(text.replace("LIBRARY", library.name))
        (place / "CMakeLists.txt").write_text(
            f"cmake_minimum_required(VERSION 3.16)\nproject(consumer LANGUAGES CXX)\nset(CMAKE_CXX_STANDARD 17)\n"
            f"find_package({library.name} 1.0 REQUIRED)\nadd_executable(main main.cpp)\n"
            f"target_link_libraries(main PRIVATE {library.name}::{library.name})\n"
        )
        run("cmake", "-S", place, "-B", place / "b", f"-DCMAKE_PREFIX_PATH={prefix}")
        run("cmake", "--build", place / "b")
        assert run(place / "b" / "main", env={}) == "24 x 24 x 16\n"
        flags = run(
            "pkg-config", "--cflags", "--libs", library.name, env={"PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")}
        ).split()
        run("c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", place / "main.cpp", *flags, "-o", place / "main")
        assert run(place / "main", env={"LD_LIBRARY_PATH": str(prefix / "lib")}) == "24 x 24 x 16\n"


@pytest.mark.needs_cmake
def test_two_libraries_in_one_program(real, small, made_by_cmake, tmp_path):
    """Both have the same problems and kernels, and a runtime each; make compiled one, CMake the other."""
    objects = [path for path in made_by_cmake[0].rglob("*.o") if "tests" not in path.parts]
    assert len(objects) > 40
    run("ar", "rcs", tmp_path / "other.a", *objects)
    (tmp_path / "main.c").write_text(
        '#include "deconv.h"\n#include "other.h"\n#include <string.h>\nint main(void) {\n'
        "  ts_library *a, *b;\n  ts_desc x;\n  if (deconv_create(&a, -1, 0) || other_create(&b, -1, 0)) return 1;\n"
        "  if (deconv_desc_init(&x, sizeof x, TS_ABI_VERSION)) return 2;\n  x.n = -5;\n"
        "  if (deconv_is_supported(a, &x) != TS_BAD_PROBLEM || *other_last_error()) return 3;\n"
        "  deconv_destroy(a);\n  other_destroy(b);\n"
        '  return strncmp(deconv_version(), "deconv ", 7) || strncmp(other_version(), "other ", 6);\n}\n'
    )
    folders = (real.folder, small.folder)
    run(
        *find_compiler().command, "-Wall", "-Werror", *(f"-I{f}/include" for f in folders), tmp_path / "main.c",
        real.folder / "lib" / "deconv.a", tmp_path / "other.a", "-o", tmp_path / "main", "-lpthread", "-ldl", "-lm",
    )  # fmt: skip
    run(tmp_path / "main")


def test_sanitizers_find_nothing(small, tmp_path):
    """Kernels and callers; ``benchmarks/embed.py --sanitize`` has all 20 problems, the runtime and races.

    ``runtime/test_library_programs.py`` has the same runtime under them, so that it is plain here.
    """
    copy = tmp_path / "other"
    shutil.copytree(small.folder, copy, ignore=shutil.ignore_patterns("build", "bin", "*.a"))
    flags = "-g1 -fsanitize=address,undefined -fno-sanitize-recover=all"
    # Optimising what a sanitizer has made of a file takes half of the time. Kernels have flags of their own.
    quick = "-O0 -fPIC -fvisibility=hidden"
    runtime = f"{quick} -std=c11 -w -Iinclude/tilesmith -Isrc -Isrc/runtime -include src/other_names.h"
    plain = (f"CFLAGS={flags}", f"COMMON={flags} {quick}", f"RUNTIME={runtime}", "SMALL=")
    run("make", "-s", "-j2", "-C", copy, "static", "bin/other_self_test", "DEFAULT=static", *plain)
    assert "4 problems right, 0 wrong" in run(copy / "bin" / "other_self_test")
    library = type(small)(copy, small.name, small.keys)
    program = linked(library, "run_problems.c", tmp_path / "run", *flags.split())
    run(program, written(small, tmp_path / "in"), tmp_path / "out", 16)
