"""The largest errors of activations on a device, over every normal float: roundings (2^-24) of the argument.

    python benchmarks/gpu/probes/activations.py [NAME[:RESULT] ...]

Needs nvcc. RESULT is the type that results are rounded to, on which GELU's text depends (fp32). The check of a kernel's
results allows eight, and 2^-10 of the result's rounding (``tests/cuda/test_activation_numbers.py``, which computes them
on the host). Of what approaches 0 like a sigmoid, the argument is one more.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "src"))
from tilesmith.codegen.cuda.activation import activate  # noqa: E402
from tilesmith.problems.epilogue import Epilogue  # noqa: E402

EXACT = {
    "silu": "x / (1.0 + exp(-x))",
    "gelu": "0.5 * x * erfc(-x * 0.70710678118654752)",
    "gelu_tanh": "x / (1.0 + exp(-1.5957691216057308 * x * (1.0 + 0.044715 * x * x)))",
    "sigmoid": "1.0 / (1.0 + exp(-x))",
    "tanh": "tanh(x)",
}
TEXT = """#include <cstdio>
{functions}
template <typename Error> __global__ void largest(unsigned *found, Error error) {{
  unsigned worst = 0;
  for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < 1ull << 32; i += gridDim.x * blockDim.x) {{
    const float v = __uint_as_float((unsigned)i);
    if (!(fabsf(v) >= 1.17549435e-38f) || isinf(v)) continue;
    worst = max(worst, __float_as_uint((float)error(v))); // of positive floats, in the order of their bits
  }}
  atomicMax(found, worst);
}}
int main() {{
  unsigned *found, bits;
  cudaMalloc(&found, 4);
{calls}  return cudaDeviceSynchronize() != cudaSuccess;
}}
"""
CALL = """  cudaMemset(found, 0, 4);
  largest<<<4096, 256>>>(found, [] __device__(float v) {{
    const double x = v, want = {exact}, error = fabs(of_{name}::activate(v) - want);
    return error == error ? error / ((fabs(x) + {more}) * 5.9604644775390625e-08) : 1e30;
  }});
  cudaMemcpy(&bits, found, 4, cudaMemcpyDeviceToHost);
  printf("{name}: %.2f roundings\\n", *(float *)&bits);
"""


def main(names: list[str]) -> int:
    asked = [(name, result or "fp32") for name, _, result in (each.partition(":") for each in names)]
    functions = (
        f"namespace of_{name}_{result} {{\n{activate(Epilogue(activation=name), '__device__ inline', result)}}}\n"
        for name, result in asked
    )
    calls = (
        CALL.format(name=f"{name}_{result}", exact=EXACT[name], more=int(name == "sigmoid")) for name, result in asked
    )
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "activations.cu"), Path(folder, "activations")
        source.write_text(TEXT.format(functions="".join(functions), calls="".join(calls)))
        command = ["nvcc", "-O2", "-arch=native", "--extended-lambda", "-o", str(program), str(source)]
        subprocess.run(command, check=True)
        return subprocess.run([program], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(EXACT)))
