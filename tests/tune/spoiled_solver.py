"""Kernels that are right as they are generated, and a compiler that spoils them.

The text of a kernel names its fault in a comment. A compiler that is started through ``SPOILING`` puts the fault there;
any other one compiles a right kernel.
"""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass

from tilesmith.codegen.symbols import make_source
from tilesmith.plan.records import Draft, Launch, Pointer, Space
from tilesmith.problems.features import EVERYTHING
from tilesmith.problems.gemm import GemmSignature
from tilesmith.solvers.solver import Accepted, Config, Rejected, SearchSpace, Unranked

M, N, K = 48, 16, 32
SIGNATURE = GemmSignature(m=M, n=N, k=K)
_CHUNK = 4

# Packs b as its transpose, copies a to the workspace, and multiplies: everything that a plan may have.
_PACK = """
void @SYM@(void *const *p, const long *s, void *scratch, long begin, long end) {
  const float *b = p[0];
  float *packed = p[1];
  for (long j = begin; j < end; j++) {
    /* @FAULT@:pack */
    for (int k = 0; k < 32; k++) packed[j * 32 + k] = b[k * 16 + j];
  }
}
"""
_COPY = """
void @SYM@(void *const *p, const long *s, void *scratch, long begin, long end) {
  const float *a = p[0];
  float *copy = p[1];
  /* @FAULT@:copy */
  for (long i = begin * 32; i < end * 32; i++) copy[i] = a[i];
}
"""
_MULTIPLY = """
void @SYM@(void *const *p, const long *s, void *scratch, long begin, long end) {
  const float *copy = p[0], *packed = p[1], *a = p[3];
  float *c = p[2], before = c[begin * 16];
  for (long i = begin; i < end; i++)
    for (int j = 0; j < 16; j++) {
      float sum = 0;
      for (int k = 0; k < 32; k++) sum += copy[i * 32 + k] * packed[j * 32 + k];
      c[i * 16 + j] = sum;
    }
  /* @FAULT@:multiply */
}
"""

# The kernel that is spoiled, the fault, and what is said of it.
FAULTS = {
    "one_element_off": ("multiply", "if (begin <= 7 && 7 < end) c[7 * 16 + 3] += 0.01f;", "1 of 768 elements wrong"),
    "writes_just_before": ("multiply", "if (begin == 0) c[-1] = 0;", "before the result, 4 from its first byte"),
    "writes_far_before": ("multiply", "if (begin == 0) c[-1100] = 0;", "before the result, 4400 from its first byte"),
    "crashes": ("multiply", "*(volatile int *)16 = 1;", "SIGSEGV"),
    "wrong_in_later_chunks": ("multiply", "if (begin > 0) c[begin * 16] += 1;", "elements wrong"),
    "wrong_from_the_third_call_on": (
        "multiply", "static int calls; if (begin == 0 && ++calls > 2) c[0] += 1;", "1 of 768 elements wrong",
    ),
    "wrong_for_aligned_results": ("multiply", "if ((long)c % 64 == 0) c[begin * 16] += 1;", "elements wrong"),
    "nan_becomes_0": (
        "multiply", "for (long i = begin * 16; i < end * 16; i++) if (c[i] != c[i]) c[i] = 0;",
        "with NaN and Inf in the operands",
    ),
    "reads_far_before": ("multiply", "*(volatile float *)(a - 900);", "before argument 0, 3600 from its first byte"),
    "stale_workspace": ("copy", "static int done; if (done >= 12) return; done++;", "elements wrong"),
    "wrong_on_another_thread_count": ("multiply", "if (begin == 0 && end == 48) c[5] += 1;", "on one thread"),
    "wrong_for_a_second_filter": (
        "pack", "static const float *last[16]; if (last[j] == b) continue; last[j] = b;",
        "with two filters packed|with a second filter",
    ),
    "reads_the_result": ("multiply", "if (before == before) c[begin * 16] = before;", "elements wrong"),
}  # fmt: skip

SPOILING = f"""#!{sys.executable} -S
import os, sys
FAULTS = {{f"/* {{name}}:{{kernel}} */": text for name, (kernel, text, _) in {FAULTS!r}.items()}}
if os.path.exists("unit.c"):
    with open("unit.c") as file:
        unit = file.read()
    for mark, fault in FAULTS.items():
        unit = unit.replace(mark, fault)
    with open("unit.c", "w") as file:
        file.write(unit)
command = @COMMAND@
os.execvp(command[0], [*command, *sys.argv[1:]])
"""


def spoiling_compiler(folder, command):
    """A command that compiles as ``command`` does, and spoils what it compiles."""
    path = folder / "spoiling-cc"
    path.write_text(SPOILING.replace("@COMMAND@", repr(list(command))))
    os.chmod(path, path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@dataclass
class Spoiled(Unranked):
    """A solver whose one kernel has a fault, if the compiler puts it there."""

    name: str
    revision: int = 1
    features = EVERYTHING

    def applicable(self, problem, target):
        return Accepted() if problem == SIGNATURE.canonical.geometry else Rejected("another problem")

    def search_space(self, problem, target):
        return SearchSpace({})

    def default_config(self, problem, target):
        return Config(())

    def predict(self, problem, config, target):
        return 1e-7  # the plain reference is left out of the search

    def draft(self, problem, config, target):
        sources = tuple(
            make_source("c", part, "f32", "t1", target.arch, "", text.replace("@FAULT@", self.name))
            for part, text in (("pack", _PACK), ("copy", _COPY), ("multiply", _MULTIPLY))
        )
        pack, copy, multiply = (source.symbol for source in sources)
        a, b, c = (Pointer(Space.SLOT, i) for i in range(3))
        packed, workspace = Pointer(Space.PACKED), Pointer(Space.WORKSPACE)
        chunk = (_CHUNK, 1, 1)
        return Draft(
            sources,
            (Launch(1, copy, (M, 1, 1), (a, workspace), chunk),
             Launch(2, multiply, (M, 1, 1), (workspace, packed, c, a), chunk)),
            (Launch(0, pack, (N, 1, 1), (b, packed), chunk),),
            packed_bytes=4 * K * N, workspace_bytes=4 * M * K,
        )  # fmt: skip
