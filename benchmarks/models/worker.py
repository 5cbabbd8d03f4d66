"""A process that makes samples and steps, one task a line of JSON, and answers each with a line.

Tasks: ``prepare`` writes model, input and float64's answer into a file; ``build`` makes a step of them in a mode, and
with ``"finish": false`` leaves the part that needs the device for itself to a task ``finish``; ``tune`` searches for
the problems of such a step; ``sample`` times it. While Inductor times kernels to choose among them, the process holds
the file ``timing``, if the task names one.
"""

from __future__ import annotations

import faulthandler
import fcntl
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from modes import Missing, mode_named  # noqa: E402
from steps import Step, build, finish  # noqa: E402
from zoo import VISION, Answer, Sample, answer_of, make_sample, torchvision_package  # noqa: E402

STEPS: dict[str, Step] = {}
TOLD_EVERY = 20  # kernels that Inductor times
HELD: dict[str, float] = {}  # MB that the steps of other modes hold in this process


def prepare(task: dict) -> dict:
    sample = make_sample(task["model"], task["family"], task["batch"], task["dtype"])
    with one_at_a_time(task.get("lock")):  # float64 takes four times the memory
        answer = answer_of(sample, task["training"], task["family"])
    torch.save((sample.model, sample.x, sample.target, answer.result, answer.loss), task["file"])
    return {}


@contextmanager
def one_at_a_time(path: str | None) -> Iterator[None]:
    """Wait for the other processes that name this file."""
    if path is None:
        yield
        return
    with Path(path).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def begin(task: dict) -> dict:
    device = torch.device(task["family"])
    # PyTorch's convolutions of fp32 stay fp32.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch._dynamo.reset()
    if task["model"] in VISION:
        torchvision_package()
    # The file is our own: it holds modules.
    model, x, target, result, loss = torch.load(task["file"], weights_only=False)
    mode = mode_named(task["mode"])
    if task.get("timing") and mode.autotunes:
        time_alone(task["timing"])
    held = torch.cuda.memory_allocated() / 2**20 if device.type == "cuda" else 0.0
    step, row = build(mode, Sample(model, x, target), Answer(result, loss), device, task["training"])
    STEPS[task["mode"]] = step
    HELD[task["mode"]] = held
    return row | (finished(task) if task.get("finish", True) else {})


def time_alone(path: str) -> None:
    """Have Inductor hold the file while it times a kernel: other processes that choose kernels wait meanwhile."""
    from torch._inductor.runtime.benchmarking import benchmarker

    timed, begin, waited, spent = benchmarker.benchmark_gpu, time.monotonic(), 0.0, []

    def alone(*args: object, **kwargs: object) -> object:
        nonlocal waited
        asked = time.monotonic()
        with one_at_a_time(path):
            held = time.monotonic()
            waited += held - asked
            try:
                return timed(*args, **kwargs)
            finally:
                spent.append(time.monotonic() - held)
                if len(spent) % TOLD_EVERY == 0:
                    print(f"{time.monotonic() - begin:.0f} s: {len(spent)} kernels timed in {sum(spent):.0f} s, "
                          f"waited {waited:.0f} s", flush=True)  # fmt: skip

    benchmarker.benchmark_gpu = alone


def finished(task: dict) -> dict:
    row = finish(STEPS[task["mode"]], mode_named(task["mode"]))
    row["peak_mb"] -= HELD[task["mode"]]
    return row


def tune(task: dict) -> dict:
    """Search for the problems that the step meets."""
    import tilesmith

    if not hasattr(tilesmith, "tune_model"):
        raise Missing("tilesmith.tune_model is not there")
    start = time.perf_counter()
    tilesmith.tune_model(STEPS[task["mode"]].call, seconds=task["seconds"])
    return {"seconds": time.perf_counter() - start}


DO = {
    "prepare": prepare, "build": begin, "finish": finished, "tune": tune,
    "sample": lambda task: STEPS[task["mode"]].sample(),
}  # fmt: skip


def main() -> None:
    # What libraries print must not get among the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    faulthandler.register(signal.SIGUSR1, all_threads=False)  # a process that is too late tells where it is
    for line in sys.stdin:
        task = json.loads(line)
        if task["family"] == "cpu":
            torch.set_num_threads(task["threads"])
        try:
            answer = DO[task["do"]](task)
        except Missing as why:
            answer = {"missing": str(why)}
        except Exception as error:
            traceback.print_exc()
            answer = {"failed": f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
