"""One step of a model in a mode: inference or training, its compile time, error, memory, and samples of its time."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from modes import Mode
from processes import session_cpu_s
from zoo import Answer, Sample, flat_gradients, loss_of, relative_error

from tilesmith.measure.timing import interleave

RATE = 1e-4  # of SGD
WARM = 3  # calls before a graph is captured or a sample is taken
SHORT_S = 0.2  # a sample of shorter steps, on a processor, is the median of three
LONGEST_S = 60.0
GRAPH_S = 0.05  # replays of one sample on a GPU last about so long


@dataclass
class Step:
    """``call`` runs the step once; ``replay``, on a GPU, the same from a CUDA graph that the benchmark captured."""

    call: Callable[[], object]
    device: torch.device
    threads: int
    replay: Callable[[], object] | None = None
    seconds: float = 0.0  # of a call, roughly

    def sample(self) -> dict:
        """One sample: microseconds of a step, of a step by the wall clock, and whether a core was missing."""
        if self.device.type == "cpu":
            found = interleave(
                {"step": self.call},
                budget_s=LONGEST_S,
                rounds=1 if self.seconds > SHORT_S else 3,
                threads=self.threads,
                estimates={"step": self.seconds},
            )["step"]
            return {"us": found.median_us, "wall_us": found.median_us, "disturbed": found.disturbed > 0}
        run = self.replay or self.call
        count = max(3, round(GRAPH_S / max(self.seconds, 1e-6)))
        return {
            "us": device_us(run, count), "wall_us": wall_us(self.call, min(count, 20)), "disturbed": False,
        }  # fmt: skip


def device_us(run: Callable[[], object], count: int) -> float:
    """Microseconds of one of ``count`` calls in a row, between two events."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    run()
    begin.record()
    for _ in range(count):
        run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / count


def wall_us(run: Callable[[], object], count: int) -> float:
    """Microseconds of one of ``count`` calls in a row, until the device has finished."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(count):
        run()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1e6 / count


def build(mode: Mode, sample: Sample, answer: Answer, device: torch.device, training: bool) -> tuple[Step, dict]:
    """Make the step, run it, and compare its first result with float64's.

    The row has ``first_s`` (from the call of the mode to its first result), ``first_cpu_s`` (processor seconds of the
    process's session meanwhile) and ``error`` (of the result, or of the gradients). ``finish`` comes next.
    """
    order = torch.channels_last_3d if sample.x.dim() == 5 else torch.channels_last
    order = order if mode.channels_last else torch.contiguous_format
    model = sample.model.to(device).to(memory_format=order).train(training)
    x, target = sample.x.to(device).to(memory_format=order), sample.target.to(device)
    threads = torch.get_num_threads()
    spent, begin = session_cpu_s(), time.perf_counter()
    with mode.settings():
        if training:
            forward = mode.apply(model)
            loss, error = first_training_step(forward, model, x, target, answer)
            facts = {"loss_error": abs(loss - answer.loss) / abs(answer.loss)}
            took, spent = time.perf_counter() - begin - error[1], session_cpu_s() - spent
            call = training_step(forward, model, x, target)
        else:
            with torch.no_grad():
                forward = mode.apply(model)
                y = forward(x)
                synchronize(device)
                took, spent = time.perf_counter() - begin, session_cpu_s() - spent
                error, facts = (relative_error(y, answer.result), 0.0), {}
                del y
            call = inference_step(forward, x)
        for _ in range(WARM):
            call()
            synchronize(device)
    free_memory(device)
    return Step(call, device, threads), {"first_s": took, "first_cpu_s": spent, "error": error[0], **facts}


def finish(step: Step, mode: Mode) -> dict:
    """Make a step ready for samples.

    The row has ``peak_mb`` (of some steps after the first ones: on a CPU of the whole process, on a GPU of the
    memory that tensors take), and on a GPU ``graph``: whether the step was captured.
    """
    facts: dict = {}
    begin = time.perf_counter()
    step.call()
    synchronize(step.device)
    step.seconds = time.perf_counter() - begin
    if step.device.type == "cuda" and mode.captured:
        step.replay, facts["graph"] = captured(step.call)
    facts["peak_mb"] = peak_mb(step.call, step.device)
    free_memory(step.device)
    return facts


def free_memory(device: torch.device) -> None:
    """Give what PyTorch keeps for later tensors back to a GPU that other processes use, too."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def first_training_step(forward, model, x, target, answer: Answer) -> tuple[float, tuple[float, float]]:
    """The loss, the error of all gradients, and the seconds that computing the error took."""
    loss = loss_of(forward(x), target)
    loss.backward()
    value = float(loss.detach())
    begin = time.perf_counter()
    error = relative_error(flat_gradients(model), answer.result)
    model.zero_grad(set_to_none=True)
    return value, (error, time.perf_counter() - begin)


def training_step(forward, model, x, target) -> Callable[[], object]:
    """Forward, loss, backward, and a step of SGD with momentum."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss_of(forward(x), target).backward()
        optimizer.step()

    return step


def inference_step(forward, x) -> Callable[[], object]:
    def step() -> object:
        with torch.no_grad():
            return forward(x)

    return step


def captured(call: Callable[[], object]) -> tuple[Callable[[], object] | None, bool]:
    """The replay of one graph of the whole step; none where the step cannot be captured."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            kept = call()
    except RuntimeError:
        torch.cuda.synchronize()
        return None, False

    def replay(kept=kept) -> None:  # the result lives as long as the graph that writes it
        graph.replay()

    return replay, True


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def peak_mb(call: Callable[[], object], device: torch.device) -> float:
    """The most memory during some steps."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        for _ in range(WARM):
            call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() / 2**20
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    for _ in range(WARM):
        call()
    try:
        lines = Path(f"/proc/{os.getpid()}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 2**10
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
