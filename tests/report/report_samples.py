"""A small database and the results of a benchmark for the tests of reports."""

import json
from dataclasses import replace

from tilesmith.db.opening import open_database
from tilesmith.db.records import UNTUNED, Record, Search
from tilesmith.problems.gemm import GemmSignature
from tilesmith.solvers.external.candidate import CUDNN

TARGET = "sm_90a:132:h200"
KEYS = [GemmSignature(m=64, n=64 * size, k=128, dtype="bf16").key() for size in (2, 3, 4)]
HOSTILE = '</script><script>window.harmed = 1</script><img src=x onerror="window.harmed = 1">'
TIMES = [40.0, 20.0, 30.0, 10.0, 25.0, 12.0, 60.0, 15.0, 11.0, 33.0]  # in the order in which they were checked


def config(place):
    return f"block_m={64 << place % 2} stages={2 + place % 3} swap_mn={place % 4}"


def trials(key):
    """Configs of one search, two a second, the first the untuned one; the last is a failure."""
    records = [
        Record(
            key, TARGET, "wgmma_gemm", config(place) + f" block_n={8 * place + 8}", 1, us, us / 100, 21, error=0.01,
            bound=0.06, method="device events", compiler="nvrtc 13.0", generator="tilesmith", host="NVIDIA H200",
            date=f"2026-11-23T08:00:{place // 2:02d}Z", origin=UNTUNED if place == 0 else "tune",
        )
        for place, us in enumerate(TIMES)
    ]  # fmt: skip
    return [
        *records,
        replace(records[0], config="block_m=256 stages=9 swap_mn=0 block_n=8", origin="tune").failed(HOSTILE),
    ]


def make_database(path):
    """Two tuned problems, one of them beside cuDNN, and one without a kernel that works."""
    database = open_database(path)
    for place, key in enumerate(KEYS[:2]):
        records = trials(key)
        database.record_trials(records)
        database.put_result(replace(records[3], origin="tune"))
        if place == 0:
            library = Record(key, TARGET, CUDNN.name, "", time_us=15.0, spread_us=0.2, samples=21)
            database.put_result(library)
        database.put_search(Search(key, TARGET, "model", 0, len(records), 6.0, "converged", "2026-11-23T08:00:00Z"))
    broken = trials(KEYS[2])[-1]
    database.record_trials([broken])
    database.put_result(broken)
    database.close()
    return str(path)


def make_results(path, times, theirs=15.0, **fields):
    """A file of ``bench``: a time, or a row's own fields, for each of the keys."""
    rows = [
        {"key": key, "solver": "wgmma_gemm", "config": config(0), "spread_us": 0.1, "status": "ok",
         "against": {"cublas": {"time_us": theirs, "spread_us": 0.1}}}
        | (row if isinstance(row, dict) else {"time_us": row})
        for key, row in zip(KEYS, times, strict=False)
    ]  # fmt: skip
    path.write_text(json.dumps({"target": TARGET, "host": {"gpu": "NVIDIA H200"}, "results": rows} | fields))
    return str(path)
