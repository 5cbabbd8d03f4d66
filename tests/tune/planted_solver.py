"""A solver whose config says how its kernel behaves: right, slow, wrong, crashing, hanging, not compiling."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from tilesmith.codegen.symbols import make_source
from tilesmith.plan.records import Draft, Launch, Pointer, Space
from tilesmith.problems.gemm import GemmSignature
from tilesmith.solvers.solver import Accepted, Config, SearchSpace, Unranked
from tilesmith.solvers.table import Candidate

M, N, K = 8, 16, 32
SIGNATURE = GemmSignature(m=M, n=N, k=K)

RIGHT, SLOW, WRONG, CRASH, HANG, BROKEN, STALE, OUTSIDE, INPUT, GENERATOR, LATE = range(11)

_BODY = """
void @SYM@(void *const *p, const long *s, void *scratch, long begin, long end) {
  const float *a = p[0], *b = p[1];
  float *c = p[2];
  static volatile int calls;
  int call = ++calls;
  (void)s, (void)scratch, (void)begin, (void)end, (void)call;
  for (volatile long spin = 0; spin < SPIN; spin++)
    ;
  for (int i = 0; i < 8; i++)
    for (int j = 0; j < 16; j++) {
      float sum = 0;
      for (int k = 0; k < 32; k++) sum += a[i * 32 + k] * b[k * 16 + j];
      c[i * 16 + j] = sum;
    }
  EXTRA
}
"""

EXTRAS = {
    WRONG: "c[77] += 0.01f;",
    CRASH: "*(volatile int *)16 = 1;",
    HANG: "for (volatile int i = 1; i;) ;",
    BROKEN: "this is not C;",
    STALE: "if (call == 2) c[3] = 0;",
    OUTSIDE: "c[128] = 1;",
    INPUT: "((float *)a)[0] = 0;",
    # Well behaved while it is checked and first timed, then not.
    LATE: "if (call > 400) *(volatile int *)16 = 1;",
}


@dataclass
class Planted(Unranked):
    """``kinds`` are the behaviours of its search space, ``default`` that of its default config."""

    kinds: tuple[int, ...] = (RIGHT, SLOW)
    default: int = SLOW
    spins: tuple[int, ...] = (0, 100, 200, 400)
    name: str = "planted"
    revision: int = 1
    predicted: float = 1e-5
    draft_s: float = 0.0
    drafted: list[Config] = field(default_factory=list)

    def applicable(self, problem, target):
        return Accepted()

    def search_space(self, problem, target):
        return SearchSpace({"kind": self.kinds, "spin": self.spins})

    def default_config(self, problem, target):
        return Config((("kind", self.default), ("spin", self.spins[0])))

    def predict(self, problem, config, target):
        return self.predicted

    def draft(self, problem, config, target):
        self.drafted.append(config)
        time.sleep(self.draft_s)
        kind = config["kind"]
        if kind == GENERATOR:
            raise KeyError("a bug in the solver")
        spin = config["spin"] * 200 + (0 if kind == RIGHT else 40_000)
        text = _BODY.replace("SPIN", str(spin)).replace("EXTRA", EXTRAS.get(kind, ""))
        source = make_source("c", "planted", "f32", f"k{kind}", target.arch, "", text)
        parameters = tuple(Pointer(Space.SLOT, i) for i in range(3))
        return Draft((source,), (Launch(0, source.symbol, (1, 1, 1), parameters),))


def candidate(solver, form=""):
    return Candidate(solver, form, SIGNATURE.geometry, Accepted())
