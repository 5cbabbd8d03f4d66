"""Bias, activation and residual: times of the plain problem and of its fused forms, by the untuned choice of each.

    python benchmarks/gpu/probes/fused.py [WORD ...]

Prints a line for each problem that contains one of the words (default: all).
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[2] / "src")]

from tilesmith import ConvSignature, Epilogue, get_launchable  # noqa: E402
from tilesmith.compare.benchmark import bench_on_device  # noqa: E402
from tilesmith.dispatch.locations import open_cache  # noqa: E402
from tilesmith.measure.machine import machine_of  # noqa: E402
from tilesmith.targets.detect_cuda import cuda_target_of  # noqa: E402

# Image size, channels, filters, taps: layers of ResNet-50 and of a U-Net at a batch of 64.
LAYERS = (
    (56, 64, 256, 1), (28, 128, 512, 1), (14, 256, 1024, 1), (7, 512, 2048, 1), (56, 256, 64, 1), (14, 1024, 256, 1),
    (56, 64, 64, 3), (28, 128, 128, 3), (14, 256, 256, 3), (7, 512, 512, 3),
)  # fmt: skip
FORMS = {
    "plain": Epilogue(), "bias": Epilogue(bias=True), "relu": Epilogue(bias=True, activation="relu"),
    "residual": Epilogue(bias=True, activation="relu", residual=True),
}  # fmt: skip
RESIDUAL_SPEED = 4.3e12


def main() -> int:
    target = cuda_target_of(0)
    machine = machine_of(target, open_cache(), 0)
    for size, c, k, taps in LAYERS:
        times, names = {}, {}
        began = time.monotonic()
        for form, epilogue in FORMS.items():
            signature = ConvSignature(
                (64, size, size, c), (k, taps, taps, c), padding=taps // 2, dtype="bf16", shared_layout="NHWC",
                epilogue=epilogue,
            )  # fmt: skip
            launch = get_launchable(signature, device="cuda", mode="fast", external=False)
            found = bench_on_device(launch, machine, (), seconds=0.25, seed=0)
            times[form], names[form] = found.time_us, f"{launch.solver} {launch.config}"
            if found.status != "ok":
                print("WRONG", form, found.status, found.reason)
        allowed = times["plain"] * 1.03 + 64 * size * size * k * 2 / RESIDUAL_SPEED * 1e6
        print(f"{size}x{size} {c}->{k} {taps}x{taps}: " + ", ".join(f"{f} {us:.1f}" for f, us in times.items())
              + f"; residual over allowed {times['residual'] / allowed:.3f} ({time.monotonic() - began:.1f} s)", flush=True)  # fmt: skip
        for form in ("plain", "residual"):
            print("   ", form, names[form])
    return 0


if __name__ == "__main__":
    sys.exit(main())
