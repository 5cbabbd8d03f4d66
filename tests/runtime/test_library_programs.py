"""Programs that link the C library: threads under sanitizers, an empty environment, what the system is asked for."""

from __future__ import annotations

import re
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from c_problems import CSRC, Problems
from library_calls import OPERANDS, inputs
from library_problems import PROBLEMS, built, shared
from tilesmith.plan.slots import arguments
from tilesmith.toolchain.compilers import find_compiler

PROGRAM = Path(__file__).with_name("library_threads.c")
NAMES = ("x", "w", "y", "bias", "residual", "scale")
COUNTED = ["-DCOUNTED", *(f"-Wl,--wrap={name}" for name in ("malloc", "calloc", "realloc", "aligned_alloc"))]


@pytest.fixture(scope="module")
def asked():
    """What the program reads, and the results that Python has for it."""
    words, results = [], []
    describe = Problems(shared())
    for values, signature in PROBLEMS.values():
        given, result, arrays = inputs(signature)
        desc = describe.desc(**{**values, "x_offset_c": 0})  # the arrays begin at the first channel
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
    flags = ["-O0", "-g", f"-fsanitize={kind}", "-fno-sanitize-recover=all", "-pthread", *COUNTED]
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
