"""How many clusters of each size the device holds at once, with the shared memory of a whole SM."""

import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

sys.path[:0] = [str(Path(__file__).parents[2] / "src")]
from device import _Attribute, _Config, check, cu, function  # noqa: E402

torch.zeros(1, device="cuda")
folder = Path(tempfile.mkdtemp())
(folder / "k.cu").write_text('extern "C" __global__ void k() {}')
subprocess.run(["nvcc", "-cubin", "-arch=sm_90", "-o", folder / "k.cubin", folder / "k.cu"], check=True)
for shared in (200_000, 100_000):
    kernel = function(str(folder / "k.cubin"), "k", shared)
    for size in (1, 2, 3, 4, 5, 6, 7, 8):
        attribute = (_Attribute * 1)()
        attribute[0].id = 4
        attribute[0].value[:3] = (size, 1, 1)
        config = _Config((size * 64, 1, 1), (256, 1, 1), shared, None, attribute, 1)
        count = ctypes.c_int()
        check(cu.cuOccupancyMaxActiveClusters(ctypes.byref(count), kernel, ctypes.byref(config)), "occupancy")
        print(f"shared {shared} cluster {size}: {count.value} clusters = {count.value * size} blocks", flush=True)
