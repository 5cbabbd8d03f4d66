"""The thread pool: every item once, steps in order, any number of callers, forks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from kernels import COUNT, FIRST, SECOND, WORKSPACE, depthwise, kernel, launch, load, scaled, slot, squared

import tilesmith.runtime
from tilesmith.problems.conv import ConvSignature


def counting(items, chunk, threads, spin=20):
    sig = ConvSignature(input_shape=(items, 1, 1, 1), kernel_shape=(1, 1, 1, 1), dtype="int8")
    executable = load(sig, [COUNT], [launch(0, COUNT, items, slot(2), spin, chunk=chunk, scratch=64)], threads=threads)
    x, w = np.zeros((items, 1, 1, 1), np.int8), np.zeros((1, 1, 1, 1), np.int8)
    y = np.zeros((items, 1, 1, 1), np.int32)
    return executable, (x, w, y)


@pytest.mark.parametrize("threads", [1, 2, 3, 9, 40])
@pytest.mark.parametrize(("items", "chunk"), [(1, 1), (2, 1), (37, 1), (1000, 7), (1000, 999), (1000, 1000), (5, 64)])
def test_every_item_once(threads, items, chunk):
    """``ts_count`` adds one to its item, if its scratch was its own while it ran."""
    executable, arrays = counting(items, chunk, threads)
    for _ in range(20):
        arrays[2][:] = 0
        executable.run(arrays)
        assert (arrays[2] == 1).all()


def test_more_items_than_a_count_holds():
    """Chunks are counted in 16 bits; longer launches get larger ones."""
    for items in (65535, 65536, 200_001):
        executable, arrays = counting(items, 1, 2, spin=0)
        executable.run(arrays)
        assert (arrays[2] == 1).all()


def turns(items, chunk, threads):
    """Who took what in one launch: ``(begin, end, thread)`` in the order of time; the caller is thread 0."""
    note = kernel(
        "ts_note",
        "i64 *log = p[1]; i64 thread = ((char *)scratch - (char *)p[0]) / 4096; volatile i64 spin = 0;"
        "i64 at = __atomic_fetch_add(&log[0], 1, __ATOMIC_RELAXED) * 3;"
        "log[at + 1] = begin, log[at + 2] = end, log[at + 3] = thread;"
        "for (i64 k = 0; k < s[0] * (end - begin); k++) spin += k;",
    )
    size = 6 * items + 8
    sig = ConvSignature(input_shape=(size, 1, 1, 1), kernel_shape=(1, 1, 1, 1), dtype="int8")
    step = launch(0, note, items, WORKSPACE, slot(2), 2000, chunk=chunk, scratch=64)
    executable = load(sig, [note], [step], threads=threads, workspace_bytes=64)
    x, w = np.zeros((size, 1, 1, 1), np.int8), np.zeros((1, 1, 1, 1), np.int8)
    y = np.zeros((size, 1, 1, 1), np.int32)
    executable.run((x, w, y))
    log = y.ravel().view(np.int64)
    return [tuple(int(number) for number in turn) for turn in log[1 : 1 + 3 * log[0]].reshape(-1, 3)]


@pytest.mark.parametrize("threads", [2, 3])
def test_each_thread_walks_from_an_end(threads):
    """The caller upwards from the first item, every worker downwards from the last."""
    for _ in range(10):
        taken = turns(1000, 1, threads)
        assert sorted(item for begin, end, _ in taken for item in range(begin, end)) == list(range(1000))
        ours = [(begin, end) for begin, end, thread in taken if thread == 0]
        assert [begin for begin, _ in ours] == [0, *(end for _, end in ours)][: len(ours)]
        for worker in range(1, threads):
            theirs = [begin for begin, _, thread in taken if thread == worker]
            assert theirs == sorted(theirs, reverse=True)


def test_turns_become_shorter():
    """Few interruptions at first, single chunks at last."""
    for taken in (turns(1000, 1, 2) for _ in range(10)):
        lengths = [end - begin for begin, end, _ in taken]
        assert len(taken) < 60
        assert max(lengths) == 1000 // 6
        assert min(lengths) == 1


def test_no_items():
    executable, arrays = counting(4, 1, 2)
    sig = depthwise(4)
    count = load(sig, [COUNT], [launch(0, COUNT, 0, slot(2), 1, scratch=64)])
    y = np.full((4, 1, 1, 1), 5, np.float32)
    count.run([np.zeros_like(y), np.zeros((1, 1, 1, 1), np.float32), y])
    assert (y == 5).all()
    executable.run(arrays)


def test_a_step_begins_after_the_step_before():
    n = 4096
    sig = depthwise(n)
    run = [launch(0, FIRST, n, slot(0), WORKSPACE, chunk=16), launch(1, SECOND, n, WORKSPACE, slot(2), n, chunk=16)]
    bound = load(sig, [FIRST, SECOND], run * 3, threads=3, workspace_bytes=4 * n).bind(sig)
    rng = np.random.default_rng(0)
    w = np.zeros((1, 1, 1, 1), np.float32)
    for _ in range(300):
        x = rng.standard_normal((n, 1, 1, 1), dtype=np.float32)
        assert np.array_equal(bound(x, w).ravel(), (x.ravel()[::-1] + 1) * 2)


def test_a_late_worker_leaves_the_next_step_alone():
    """It wakes when all of a short step is claimed, while the caller publishes a longer one."""
    script = """
import sys
sys.path.insert(0, sys.argv[1])
from kernels import COUNT, launch, load, slot
import numpy as np
from tilesmith.problems.conv import ConvSignature
sig = ConvSignature(input_shape=(64, 1, 1, 1), kernel_shape=(1, 1, 1, 1), dtype="int8")
steps = [launch(0, COUNT, items, slot(2), 0, scratch=64) for items in (2, 64)] * 32
executable = load(sig, [COUNT], steps, threads=2)
x, w = np.zeros((64, 1, 1, 1), np.int8), np.zeros((1, 1, 1, 1), np.int8)
y = np.zeros((64, 1, 1, 1), np.int32)
for _ in range(2000):
    y[:] = 0
    executable.run((x, w, y))
    assert (y[:2] == 64).all() and (y[2:] == 32).all()
print("ended")
"""
    folder = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", script, folder], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "ended\n", done.stderr


def test_many_callers_at_once():
    n = 3000
    sig = depthwise(n)
    run = [launch(0, FIRST, n, slot(0), WORKSPACE, chunk=50), launch(1, SECOND, n, WORKSPACE, slot(2), n, chunk=50)]
    bounds = [load(sig, [FIRST, SECOND], run, threads=t, workspace_bytes=4 * n).bind(sig) for t in (1, 2, 4)]
    square_sig, square = squared(n, threads=3)
    square_bound = square.bind(square_sig)
    w = np.full((1, 1, 1, 1), 3, np.float32)

    def caller(seed):
        rng = np.random.default_rng(seed)
        for i in range(150):
            x = rng.standard_normal((n, 1, 1, 1), dtype=np.float32)
            assert np.array_equal(bounds[i % 3](x, w).ravel(), (x.ravel()[::-1] + 1) * 2)
            assert np.array_equal(square_bound.prepare(w)(x), x * 9)
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(caller, range(8)))


def test_other_python_threads_run_meanwhile():
    """A kernel that waits for another Python thread ends: the GIL is released."""
    sig = depthwise(1024)
    wait = kernel(
        "ts_wait_for",
        "volatile float *x = p[0]; float *y = p[1];"
        "while (x[0] == 0) {} for (i64 i = begin; i < end; i++) y[i] = x[0];",
    )
    bound = load(sig, [wait], [launch(0, wait, 1024, slot(0), slot(2), chunk=1024)]).bind(sig)
    x, w = np.zeros((1024, 1, 1, 1), np.float32), np.zeros((1, 1, 1, 1), np.float32)
    results = []
    thread = threading.Thread(target=lambda: results.append(bound(x, w)))
    thread.start()
    time.sleep(0.02)
    x[0] = 4
    thread.join(20)
    assert (results[0] == 4).all()


def test_a_busy_pool_is_not_waited_for():
    """While one caller holds the pool in a launch that cannot end, another caller's run ends."""
    sig = depthwise(1024)
    wait = kernel(
        "ts_hold",
        "volatile float *x = p[0]; float *y = p[1];"
        "while (x[0] == 0) {} for (i64 i = begin; i < end; i++) y[i] = x[0];",
    )
    held = load(sig, [wait], [launch(0, wait, 1024, slot(0), slot(2), chunk=64)]).bind(sig)
    x, w = np.zeros((1024, 1, 1, 1), np.float32), np.ones((1, 1, 1, 1), np.float32)
    thread = threading.Thread(target=held, args=(x, w))
    thread.start()
    time.sleep(0.02)
    other_sig, other = scaled(64)
    z = np.arange(64, dtype=np.float32).reshape(64, 1, 1, 1)
    assert np.array_equal(other.bind(other_sig)(z, w), z)
    assert thread.is_alive()
    x[0] = 1
    thread.join(20)
    assert not thread.is_alive()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_a_pool_of_its_own():
    sig, executable = scaled(2000, threads=3)
    bound = executable.bind(sig)
    x, w = np.ones((2000, 1, 1, 1), np.float32), np.full((1, 1, 1, 1), 2, np.float32)
    assert (bound(x, w) == 2).all()
    stop = threading.Event()

    def keep_busy():
        while not stop.is_set():
            bound(x, w)

    busy = threading.Thread(target=keep_busy)
    busy.start()
    try:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                good = all((bound(x, w) == 2).all() for _ in range(50))
                os._exit(0 if good else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        busy.join()


def test_the_pool_has_no_races(tmp_path):
    """``pool_races.c`` under ThreadSanitizer, which stops at the first data race."""
    csrc = Path(tilesmith.runtime.__file__).parent / "csrc"
    sources = [Path(__file__).with_name("pool_races.c"), csrc / "ts_pool.c", csrc / "ts_wait.c"]
    command = ["cc", "-std=gnu11", "-O1", "-g", "-fsanitize=thread", f"-I{csrc}", *map(str, sources)]
    # Fences are not followed; the pool's own order does not rest on one where it hands out memory.
    subprocess.run([*command, "-Wno-tsan", "-o", str(tmp_path / "races"), "-lpthread"], check=True, capture_output=True)
    # ThreadSanitizer refuses some kernels' random places of memory.
    done = subprocess.run(
        ["setarch", "-R", str(tmp_path / "races")], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


def test_workers_leave_signals_to_the_program():
    """Ctrl-C during runs reaches Python's main thread."""
    script = """
import signal, sys
sys.path.insert(0, sys.argv[1])
from kernels import scaled
import numpy as np, os, threading, time
sig, executable = scaled(4096, threads=4)
bound = executable.bind(sig)
x, w = np.ones((4096, 1, 1, 1), np.float32), np.ones((1, 1, 1, 1), np.float32)
bound(x, w)
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    end = time.time() + 20
    while time.time() < end:
        bound(x, w)
except KeyboardInterrupt:
    print("stopped")
"""
    folder = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", script, folder], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "stopped\n", done.stderr


def test_workers_sleep_when_there_is_nothing_to_do():
    executable, arrays = counting(64, 1, 2)
    executable.run(arrays)
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.1
