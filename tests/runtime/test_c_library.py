"""The C runtime without Python: built by the README's command, driven by a C program."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
from kernels import PACK, SCALE, artifact, squared

import tilesmith.runtime
from tilesmith.plan.serial import encode
from tilesmith.toolchain.compilers import find_compiler

CSRC = Path(tilesmith.runtime.__file__).parent / "csrc"

PROGRAM = r"""
#include "tilesmith_runtime.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void doubled(void *const *p, const int64_t *s, void *scratch, int64_t begin, int64_t end) {
  (void)s, (void)scratch;
  for (int64_t i = begin; i < end; i++) ((float *)p[2])[i] = 2 * ((float *)p[0])[i];
}

int main(int argc, char **argv) {
  static char bytes[65536];
  FILE *file = fopen(argv[1], "rb");
  size_t size = fread(bytes, 1, sizeof bytes, file);
  ts_plan *plan;
  ts_error error;
  if (ts_plan_open(bytes, size - 1, &plan, &error) != TS_BAD_PLAN || plan != NULL) return 2;
  puts(error.text);
  if (ts_plan_open(bytes, size, &plan, NULL) != TS_OK) return 3;
  memset(bytes, 0, sizeof bytes);
  ts_plan_sizes sizes = ts_plan_get_sizes(plan);
  printf("%lld %lld %u %u %u %u\n", (long long)sizes.packed_bytes, (long long)sizes.workspace_bytes, sizes.alignment,
         sizes.threads, sizes.slots, sizes.artifacts);
  for (uint32_t i = 0; i < sizes.slots; i++) {
    ts_slot slot;
    if (ts_plan_get_slot(plan, i, &slot) != TS_OK) return 4;
    printf("%s %s %lld %d\n", slot.name, slot.dtype, (long long)slot.nbytes, slot.is_output);
  }
  float x[8], w = 3, y[8] = {0};
  for (int i = 0; i < 8; i++) x[i] = (float)i;
  void *slots[] = {x, &w, y}, *packed = aligned_alloc(64, (size_t)sizes.packed_bytes);
  if (ts_plan_run(plan, slots, packed, NULL) != TS_NOT_LOADED) return 5;
  for (int i = 2; i < argc; i++)
    if (ts_plan_bind_file(plan, (uint32_t)(i - 2), argv[i], &error) != TS_OK) return puts(error.text), 6;
  if (ts_plan_bind_file(plan, 0, argv[2], &error) != TS_BAD_ARGUMENT) return 7;
  if (ts_plan_run(plan, slots, NULL, NULL) != TS_BAD_ARGUMENT) return 8;
  if (ts_plan_run(plan, slots, (char *)packed + 4, NULL) != TS_BAD_ARGUMENT) return 9;
  slots[2] = NULL;
  if (ts_plan_run(plan, slots, packed, NULL) != TS_BAD_ARGUMENT) return 10;
  slots[2] = y;
  if (ts_plan_prepare(plan, slots, packed, NULL) != TS_OK || ts_plan_run(plan, slots, packed, NULL) != TS_OK) return 11;
  for (int i = 0; i < 8; i++) printf("%g ", y[i]);
  if (ts_plan_bind_kernel(plan, "ts_unknown", doubled, &error) != TS_BAD_ARGUMENT) return 12;
  if (ts_plan_bind_kernel(plan, "ts_scale", doubled, NULL) != TS_OK) return 13;
  if (ts_plan_run(plan, slots, packed, NULL) != TS_OK) return 14;
  printf("%g\n", y[7]);
  ts_plan_close(plan);
  free(packed);
  return 0;
}
"""


def test_a_program_without_python(tmp_path):
    (command,) = re.findall(r"```sh\n(cc .* && ar .*)\n```", (CSRC / "README.md").read_text())
    cc = " ".join(find_compiler().command)
    for file in CSRC.glob("*.[ch]"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "main.c").write_text(PROGRAM)
    command = command.replace("-O2", "-O0")  # `ts-query` is built as its command has it, by other tests
    build = (
        command.replace("cc ", cc + " ", 1) + f" && {cc} -std=c11 main.c -o main libtilesmith_runtime.a -lpthread -ldl"
    )
    subprocess.run(build, shell=True, cwd=tmp_path, check=True)

    _, executable = squared(8)
    data = encode(executable.plan)
    (tmp_path / "plan").write_bytes(data)
    paths = {a.digest: str(a.path) for a in (artifact(PACK), artifact(SCALE))}
    arguments = [str(tmp_path / "plan"), *(paths[digest] for digest in executable.plan.artifacts)]
    done = subprocess.run([str(tmp_path / "main"), *arguments], capture_output=True, text=True, check=False)
    values = " ".join(f"{v:g}" for v in np.arange(8) * 9)
    assert done.stdout.splitlines() == [
        f"plan of {len(data)} bytes, got {len(data) - 1}",
        "64 0 64 2 3 2",
        "x fp32 32 0",
        "w fp32 4 0",
        "y fp32 32 1",
        f"{values} 14",
    ]
    assert done.returncode == 0


def test_the_binding_compiles_without_a_warning():
    places = [f"-I{CSRC}", "-isystem", sysconfig.get_paths()["include"], "-isystem", np.get_include()]
    command = [
        *find_compiler().command,
        "-std=c11",
        "-fsyntax-only",
        "-Wall",
        "-Wextra",
        "-Wshadow",
        "-Werror",
        *places,
    ]
    for file in sorted((CSRC.parent / "binding").glob("*.c")):
        done = subprocess.run([*command, str(file)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
