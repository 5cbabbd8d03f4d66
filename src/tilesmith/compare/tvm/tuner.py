"""Tunes one product by TVM's MetaSchedule: a program for the environment that has TVM.

``python tuner.py`` reads what is asked from stdin and writes a line for each batch of trials. It imports TVM and the
standard library alone. Trials are kept in the work folder: begun again, it goes on where it was.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

BATCH = 64  # trials between two looks at the clock
_COMPILE_S = 60  # of one trial: each of TVM's processes begins by importing TVM


def main(asked: dict[str, Any]) -> None:
    """Tune, and export the best kernel.

    Args:
        asked: ``m``, ``n``, ``k``, ``batch``, ``trans_a``, ``trans_b``, ``dtype``, ``alpha``; ``arch`` (empty on CPUs)
            and ``threads``; ``trials``, ``seconds``; ``folder`` for the database, ``out`` for the library, and
            ``turns``, a file: searches that lock it measure in turns.
    """
    began = time.monotonic()
    # NOTE: by default TVM compiles with NVRTC through the package cuda-bindings, and with the headers beside nvcc.
    os.environ.setdefault("TVM_CUDA_COMPILE_MODE", "nvcc")
    import tvm
    from tvm.s_tir import meta_schedule as ms

    if asked["arch"]:
        _need_device(tvm)
    rules = ("cuda-tensorcore" if asked["dtype"] == "float16" else "cuda") if asked["arch"] else "llvm"
    if rules != "cuda-tensorcore":
        # NOTE: reading all tensor intrinsics takes half a minute of processor time; these rules use none.
        sys.modules["tvm.s_tir.tensor_intrin"] = ModuleType("tvm.s_tir.tensor_intrin")
    target, module = _target(tvm, asked), _module(tvm, asked)
    database = ms.database.JSONDatabase(work_dir=asked["folder"])
    done, batch_began = _trials(asked["folder"]), began
    _say(trials=done, best_us=_best(database, module, target))

    late = False

    def after_batch() -> None:
        nonlocal batch_began, late
        now = time.monotonic()
        _say(trials=_trials(asked["folder"]), best_us=_best(database, module, target))
        late = now - began + 1.2 * (now - batch_began) >= asked["seconds"]
        if late:
            raise TimeoutError  # ends TVM's search, which has no other way; its trials are kept
        batch_began = now

    if done < asked["trials"] and asked["seconds"] > 0:
        try:
            # One search for all batches: begun anew it would forget what it has measured, and measure it again.
            ms.tune_tir(
                module, target, work_dir=asked["folder"], max_trials_global=asked["trials"] - done,
                num_trials_per_iter=min(BATCH, asked["trials"] - done), database=database, cost_model=_cost_model(ms),
                measure_callbacks=[*ms.MeasureCallback.create("default"), _callback(ms, after_batch)],
                num_tuning_cores=asked["cores"], space=ms.space_generator.create(rules),
                builder=ms.builder.LocalBuilder(max_workers=asked["cores"], timeout_sec=_COMPILE_S, f_build=_build),
                runner=ms.runner.LocalRunner(timeout_sec=_COMPILE_S, f_run_evaluator=_measuring(asked["turns"])),
            )  # fmt: skip
        except Exception:  # from TVM's C++ it comes back as another one
            if not late:
                raise
    done = _trials(asked["folder"])
    schedule = database.query_schedule(module, target, workload_name="main")
    if schedule is None:
        raise SystemExit(f"none of {done} trials ran")
    staged = Path(f"{asked['out']}.{os.getpid()}.so")
    with target:
        tvm.compile(schedule.mod, target=target).export_library(str(staged))
    os.replace(staged, asked["out"])
    _say(trials=done, best_us=_best(database, module, target), exported=True)


def _need_device(tvm: Any) -> None:
    """Say what is missing before a thousand trials fail for it."""
    library = Path(tvm.__file__).parent / "lib" / "libtvm_runtime_cuda.so"
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        raise SystemExit(f"TVM's runtime for CUDA does not load: {error}") from None
    if not tvm.cuda(0).exist:
        raise SystemExit("TVM finds no CUDA device")
    if shutil.which("nvcc") is None and os.environ["TVM_CUDA_COMPILE_MODE"] == "nvcc":
        raise SystemExit("TVM compiles with nvcc, which is not on the PATH")


def _callback(ms: Any, after_batch: Callable[[], None]) -> Any:
    from tvm.ir.utils import derived_object

    @derived_object
    class AfterBatch(ms.measure_callback.PyMeasureCallback):  # type: ignore[misc]
        def apply(self, *_: Any) -> None:
            after_batch()

    return AfterBatch()


def _build(module: Any, target: Any, _: Any) -> Any:
    """As TVM's own function, but without the intrinsics, in every process that compiles."""
    from tvm.driver import build
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    with target:  # else the compiler asks the device for its architecture, in every process
        return build(RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module), target=target)


def _measuring(turns: str) -> Any:
    """As TVM's own function, but one search measures at a time: others compile meanwhile."""

    def measure(module: Any, device: Any, config: Any, arguments: Any) -> Any:
        import fcntl

        from tvm.s_tir.meta_schedule.runner.utils import run_evaluator_common

        with open(turns, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            return run_evaluator_common(module, device, config, arguments)

    return measure


def _target(tvm: Any, asked: dict[str, Any]) -> Any:
    if asked["arch"]:
        limits = {"max_threads_per_block": 1024, "max_shared_memory_per_block": 49152, "thread_warp_size": 32}
        return tvm.target.Target({"kind": "cuda", "arch": asked["arch"], "registers_per_block": 65536, **limits})
    name = tvm.get_global_func("target.llvm_get_system_cpu", allow_missing=True)
    return tvm.target.Target({"kind": "llvm", "mcpu": str(name()) if name else "native", "num-cores": asked["threads"]})


def _module(tvm: Any, asked: dict[str, Any]) -> Any:
    te, m, n, k = tvm.te, asked["m"], asked["n"], asked["k"]
    kind, sums = asked["dtype"], "float64" if asked["dtype"] == "float64" else "float32"
    lead = [asked["batch"]] if asked["batch"] > 1 else []
    a = te.placeholder([*lead, *((k, m) if asked["trans_a"] else (m, k))], kind, "a")
    b = te.placeholder([*lead, *((n, k) if asked["trans_b"] else (k, n))], kind, "b")
    axis = te.reduce_axis((0, k), "k")

    def product(*at: Any) -> Any:
        *batch, i, j = at
        left = a[(*batch, axis, i) if asked["trans_a"] else (*batch, i, axis)]
        right = b[(*batch, j, axis) if asked["trans_b"] else (*batch, axis, j)]
        return te.sum(left.astype(sums) * right.astype(sums), axis=axis)

    c = te.compute([*lead, m, n], product, "c")
    if kind != sums:
        found = c
        c = te.compute([*lead, m, n], lambda *at: found[at].astype(kind), "rounded")
    return tvm.IRModule({"main": te.create_prim_func([a, b, c])})


def _cost_model(ms: Any) -> Any:
    try:
        import xgboost  # noqa: F401
    except ImportError:
        return ms.cost_model.RandomModel()
    return ms.cost_model.XGBModel()


def _trials(folder: str) -> int:
    try:
        return Path(folder, "database_tuning_record.json").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def _best(database: Any, module: Any, target: Any) -> float | None:
    record = database.query_tuning_record(module, target, workload_name="main")
    times = [float(each) for each in record.run_secs or ()] if record is not None else []
    return 1e6 * sum(times) / len(times) if times else None


def _say(**values: Any) -> None:
    print("told: " + json.dumps(values), flush=True)


if __name__ == "__main__":
    main(json.load(sys.stdin))
