"""Programs that link the C library: threads under sanitizers, an empty environment, what the system is asked for."""

from __future__ import annotations

import re
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from library_build import CSRC, TYPES
from library_calls import OPERANDS, Library, inputs
from library_problems import PROBLEMS, TARGET, built, shared
from tilesmith.plan.slots import arguments
from tilesmith.toolchain.compilers import find_compiler

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "c-library.md"
PROGRAM = Path(__file__).with_name("library_threads.c")
NAMES = ("x", "w", "y", "bias", "residual", "scale")
COUNTED = ["-DCOUNTED", *(f"-Wl,--wrap={name}" for name in ("malloc", "calloc", "realloc", "aligned_alloc"))]


@pytest.fixture(scope="module")
def asked():
    """What the program reads, and the results that Python has for it."""
    words, results = [], []
    describe = Library(shared())
    for values, signature in PROBLEMS.values():
        given, result, arrays = inputs(signature)
        desc = describe.desc(**{**values, "x_offset_c": 0, "y_offset_c": 0})  # the arrays begin at the first channel
        spans = {OPERANDS[slot.name]: slot.nbytes for slot in arguments(signature)}
        words.append(bytes(desc))
        for name in NAMES:
            content = _memory(arrays[name], spans[name]) if name in arrays else b""
            words.append(struct.pack("Q", len(content)) + content)
        (made, *_) = (each for each in built()[1] if each.signature is signature)
        results.append(np.asarray(made.executable.bind(signature)(*given)).tobytes())
        assert len(results[-1]) == result.nbytes
    return b"".join(words), results


def _memory(array, nbytes):
    """The bytes that a strided array spans."""
    flat = np.lib.stride_tricks.as_strided(array, (nbytes // array.itemsize,), (array.itemsize,))
    return flat.tobytes()


def run(command, asked, **more):
    """The answers are those of Python. The last problem has a plan in the package alone, else the reference runs."""
    words, results = asked
    done = subprocess.run(command, input=words, capture_output=True, check=False, timeout=240, **more)
    assert (done.returncode, done.stderr.decode()) == (0, "")
    found, begin = [], 0
    for result in results:
        found.append(done.stdout[begin : begin + len(result)])
        begin += len(result)
    assert begin == len(done.stdout)
    assert found == results


@pytest.mark.needs_linux
@pytest.mark.parametrize("kind", ["thread", "address,undefined"])
def test_sixteen_threads(asked, kind):
    """They share a plan, make plans of their own, enumerate, and load packages meanwhile."""
    build = built()[0]
    flags = ["-O0", "-g1", f"-fsanitize={kind}", "-fno-sanitize-recover=all", "-pthread", *COUNTED]
    program = build.link(kind.split(",")[0], *flags, program=PROGRAM.read_text())
    run([str(program), "16", str(build.folder / "whole.kdb")], asked)


@pytest.fixture(scope="module")
def plain():
    """The program with the shared library."""
    library = shared()
    program = library.with_name("plain")
    command = [*find_compiler().command, "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{CSRC}", str(PROGRAM), "-o",
               str(program), str(library), f"-Wl,-rpath,{library.parent}", "-lpthread"]  # fmt: skip
    subprocess.run(command, check=True)
    return program


def test_an_empty_environment(asked, plain):
    run([str(plain), "2"], asked, env={}, cwd="/")


@pytest.mark.needs_strace
def test_what_the_system_is_asked_for(asked, plain, tmp_path):
    """No file is opened for writing or made, no program started; besides libraries it reads facts of the machine."""
    log = tmp_path / "log"
    command = ["strace", "-f", "-o", str(log), "-e", "trace=%file,%process,memfd_create,socket", str(plain), "3"]
    run(command, asked)
    lines = log.read_text().splitlines()
    assert sum("execve(" in line for line in lines) == 1
    changes = r"\b(open|openat|creat|mkdir|mkdirat|unlink|unlinkat|rename|renameat|memfd_create|socket)\("
    opened = [line for line in lines if re.search(changes, line)]
    assert opened
    for line in opened:
        assert "O_RDONLY" in line, line
        assert re.search(r'"(/[^"]*\.so[^"]*|/etc/ld\.so[^"]*|/proc/[^"]*|/sys/[^"]*)"', line), line


@pytest.mark.needs_linux
def test_what_it_links(plain):
    told = subprocess.run(["ldd", str(shared())], capture_output=True, text=True, check=True).stdout
    names = set(re.findall(r"^\s*(?:\S*/)?(lib\w+|ld-linux\S*|linux-vdso)", told, re.M))
    assert {n for n in names if n.startswith("lib")} <= {"libc", "libm", "libpthread", "libdl"}


@pytest.fixture(scope="module")
def renamed():
    """`deconv.h`, as `tilesmith embed` writes it but for the names that are linked."""
    calls = re.findall(r"\bts_library_(\w+)\(", (CSRC / "ts_library.h").read_text())
    lines = [f"#define deconv_{name} ts_library_{name}" for name in dict.fromkeys(calls)]
    header = shared().with_name("deconv.h")
    header.write_text("\n".join([*lines, '#include "ts_library.h"', ""]))
    return header


def test_the_page(renamed, tmp_path):
    """Its program prints what the page says, on plans of the library; its other snippets run within the program."""
    text = PAGE.read_text()
    program, *snippets = re.findall(r"^```c\n(.*?)^```", text, re.M | re.S)
    output = re.search(r"^```c\n.*?^```\n\n```text\n(.*?)^```", text, re.M | re.S)[1]
    outside = "".join(each for each in snippets if each.startswith("static"))
    inside = "".join(f"{{\n{each}}}\n" for each in snippets if not each.startswith("static"))
    last = "  deconv_plan_destroy(plan);\n"
    assert program.count(last) == 1
    whole = program.replace(last, inside + last).replace("int main", outside + "int main")
    (tmp_path / "more.kdb").write_bytes((built()[0].folder / "whole.kdb").read_bytes())
    library = shared()
    flags = [
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{CSRC}",
        f"-I{renamed.parent}",
        f"-Wl,-rpath,{library.parent}",
    ]
    told = []
    for source in (program, whole):
        (tmp_path / "sample.c").write_text(source)
        command = [*find_compiler().command, *flags, "sample.c", str(library), "-o", "sample"]
        subprocess.run(command, cwd=tmp_path, check=True)
        done = subprocess.run(["./sample"], cwd=tmp_path, env={}, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        told.append(done.stdout)
    assert told[0] == output
    assert told[1].startswith(output)
    assert "0 c_" in told[1]
    assert f", 1 plans for {TARGET.name}" in told[1]


def test_each_call_is_on_the_page():
    text = PAGE.read_text()
    for name in re.findall(r"\bts_library_(\w+)\(", (CSRC / "ts_library.h").read_text()):
        assert re.search(rf"`{name}\(", text), name
    for status in re.findall(r"^  (TS_\w+)[ ,]", re.search(r"enum ts_status \{(.*?)\}", TYPES, re.S)[1], re.M):
        assert f"`{status}`" in text, status


def test_the_header_is_c99_and_cplusplus(tmp_path):
    (tmp_path / "use.c").write_text('#include "ts_library.h"\nunsigned flags = TS_NEAREST | TS_HAS_X;\n')
    for flags in (["-x", "c", "-std=c99"], ["-x", "c++", "-std=c++17"]):
        command = [*find_compiler().command, *flags, "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
        subprocess.run([*command, f"-I{CSRC}", str(tmp_path / "use.c")], check=True)
