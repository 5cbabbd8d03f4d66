"""The reader in C programs: raced by threads under a sanitizer, linked without pthreads' help, as documented."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import tilesmith.runtime
from package_samples import package
from tilesmith.package.files import write
from tilesmith.package.form import encode
from tilesmith.toolchain.compilers import find_compiler

CSRC = Path(tilesmith.runtime.__file__).parent / "csrc"
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "package.md"
pytestmark = pytest.mark.needs_compiler
# Packages and what they need: they know nothing of problems, machines and libraries.
BELOW = (
    "cuda", "cuda_run", "decode", "ed25519", "error", "image", "inflate", "lzma", "package", "pool", "run", "sha256",
    "sha512", "signature", "wait",
)  # fmt: skip

EMBEDDED = """
#include "ts_package.h"
#include <stdio.h>
#include <string.h>
static const unsigned char bytes[] = {%s};
int main(void) {
  ts_package *package;
  ts_error error = {""};
  ts_entry entry;
  uint32_t index;
  const char name[] = "conv1;fwd;n=1\\nx86_64-v4:2:zen5";
  if (ts_package_open(bytes, sizeof bytes, &package, &error) != TS_OK) return puts(error.text), 1;
  if (ts_package_verify(package, &error) != TS_OK) return puts(error.text), 2;
  if (ts_package_find(package, TS_ENTRY_PLAN, name, sizeof name - 1, 1, &index, &error) != TS_OK) return 3;
  if (ts_package_entry(package, index, &entry, &error) != TS_OK) return 4;
  printf("%%s %%s %%u %%u %%llu\\n", ts_package_get_facts(package)->name, ts_package_get_facts(package)->target,
         entry.rank, entry.revision, (unsigned long long)entry.size);
  ts_package_close(package);
  return 0;
}
"""


def build(tmp_path, text, *flags):
    """A program of a C text and the runtime's files."""
    source = tmp_path / "program.c"
    source.write_text(text)
    files = [str(source), *(f"{CSRC}/ts_{name}.c" for name in BELOW)]
    command = [*find_compiler().command, "-std=c11", "-O0", "-g1", *flags, f"-I{CSRC}", *files, "-lpthread", "-ldl"]
    subprocess.run([*command, "-o", str(tmp_path / "program")], check=True)
    return str(tmp_path / "program")


def test_threads_do_not_race(tmp_path):
    program = build(tmp_path, (Path(__file__).parent / "races.c").read_text(), "-fsanitize=thread")
    write(tmp_path / "a.kdb", package(150))
    done = subprocess.run([program, str(tmp_path / "a.kdb")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_package_that_is_linked_in(tmp_path):
    """An array of constants, in a program with an empty environment; tests/fuzz has the reader under sanitizers."""
    made = package(3)
    text = EMBEDDED % ",".join(map(str, encode(made)))
    program = build(tmp_path, text)
    told = subprocess.check_output([program], text=True, env={})
    (entry,) = [e for e in made.entries if e.kind == 1 and e.problem == "conv1;fwd;n=1" and e.rank == 1]
    assert told == f"test x86_64-v4:2:zen5 1 2 {entry.size}\n"


def test_the_documented_snippet_compiles(tmp_path):
    (snippet,) = re.findall(r"^```c\n#include \"ts_package.h\"\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    head = '#include "ts_package.h"\n#include <stdlib.h>\nvoid die(const char *);\n'
    (tmp_path / "snippet.c").write_text(f"{head}void snippet(void);\nvoid snippet(void) {{\n{snippet}}}\n")
    flags = ["-std=c11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{CSRC}"]
    subprocess.run([*find_compiler().command, *flags, str(tmp_path / "snippet.c")], check=True)
