"""Counts an activation's machine instructions for each result; no GPU is needed.

    python benchmarks/gpu/probes/activation_sass.py [NAME[:RESULT] ...] [--target NAME] [--nvdisasm FILE]

RESULT is the type that results are rounded to, on which GELU's text depends (fp32). A kernel with the activation on 8
floats of a thread is compiled beside one without; of the difference in instructions, which nvdisasm of the CUDA toolkit
tells, an eighth is printed, with the names. What is set once for all results counts an eighth.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "src")]
from sass import instructions  # noqa: E402

from tilesmith.codegen.cuda.activation import activate  # noqa: E402
from tilesmith.plan.records import Source  # noqa: E402
from tilesmith.problems.epilogue import ACTIVATIONS, Epilogue  # noqa: E402
from tilesmith.targets.names import parse_target  # noqa: E402
from tilesmith.targets.target import Target  # noqa: E402
from tilesmith.toolchain.build import build_unit  # noqa: E402

ASKED = [name for name in ACTIVATIONS if name != "none"]
RESULTS = 8
TEXT = """extern "C" __global__ void ts_count(float *values) {{
  float v[{results}];
#pragma unroll
  for (int i = 0; i < {results}; i++) v[i] = values[threadIdx.x + 1024 * i];
#pragma unroll
  for (int i = 0; i < {results}; i++) values[threadIdx.x + 1024 * ({results} + i)] = activate(v[i]);
}}
"""


def counted(name: str, result: str, target: Target, nvdisasm: str) -> Counter[str]:
    """Of a kernel's instructions, by name."""
    text = activate(Epilogue(activation=name), "static __device__ inline", result) + TEXT.format(results=RESULTS)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "count.cubin")
        build_unit([Source("cuda", "ts_count", "", text)], target, path)
        printed = subprocess.run([nvdisasm, "-c", path], capture_output=True, text=True, check=True).stdout
    return Counter(each.name for each in instructions(printed) if each.name != "NOP")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=[*ASKED, "gelu:bf16", "gelu:fp16", "gelu:fp8e4m3"])
    parser.add_argument("--target", default="sm_90a:132:h100")
    parser.add_argument("--nvdisasm", default="nvdisasm", metavar="FILE")
    args = parser.parse_args()
    target = parse_target(args.target)
    plain = counted("none", "fp32", target, args.nvdisasm)
    for each in args.names:
        name, _, result = each.partition(":")
        more = counted(name, result or "fp32", target, args.nvdisasm)
        more.subtract(plain)
        told = ", ".join(f"{what} {count / RESULTS:g}" for what, count in more.most_common() if count)
        print(f"{each}: {more.total() / RESULTS:g} ({told})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
