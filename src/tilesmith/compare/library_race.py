"""The generated choice against another library's own kernels, head to head, in the process that calls both.

A search can let them race in its playoff (``tune.playoff``), in a process of its own. cuDNN chooses among its plans
anew in every process, though, and not always the same: where both are close, this race is the one that tells what a
launchable of this process should call.
"""

from __future__ import annotations

from dataclasses import replace

from tilesmith.db.records import Record
from tilesmith.db.store import Database
from tilesmith.dispatch.launchable import Launchable, forget_launchables
from tilesmith.dispatch.measuring import device_bench_of
from tilesmith.measure.device_timing import Call
from tilesmith.problems.samples import sample_args
from tilesmith.tune.job import make_job
from tilesmith.tune.measuring import timed

ROUNDS = 31
OURS = "ours"


def race_library(launch: Launchable, database: Database, *, seconds: float = 1.0, seed: int = 0) -> tuple[Record, ...]:
    """Time a CUDA launchable and the library's own kernels, interleaved, and remember all: then the database decides.

    The records, the launchable's first; nothing where the library does not compute the problem, or computes it wrong,
    or where the host was late for too many samples.
    """
    signature = launch.signature.canonical
    job = make_job(signature, launch.target, "tune", device=launch.ordinal, external=True)
    library = next((each.external for each in job.candidates.values() if each.external is not None), None)
    if library is None or not launch.exportable:
        return ()
    values = sample_args(signature, seed)
    place = device_bench_of(launch, values)
    checked = place.check(launch.executable)
    if not checked.ok or not place.certify(launch.executable).ok:
        return ()
    with library.measured(signature, values, launch.ordinal, place.checker.stream.handle, place.calls) as theirs:
        calls: dict[str, Call] = {OURS: place.timed.plan(launch.executable).run}
        records = {}
        for point in job.external_points:
            run = theirs.call(str(point.config))
            verdict = place.check_call(run, theirs.values)
            if verdict.ok:
                calls[str(point)] = run
                records[str(point)] = replace(
                    job.blank(point), error=verdict.error, bound=verdict.bound, compiler=library.version()
                )
        if not records:
            return ()
        timings = place.time(calls, budget_s=seconds, rounds=ROUNDS)
    if any(timing.disturbed for timing in timings.values()):
        return ()
    best = min(records, key=lambda name: timings[name].median_us)
    mine = launch.choice.record or Record(
        job.problem, launch.target.name, launch.solver, launch.config,
        revision=job.candidates[launch.solver].solver.revision, compiler=job.compiler.identity, host=job.host.name,
        date=job.host.date, error=checked.error, bound=checked.bound,
    )  # fmt: skip
    found = (timed(mine, timings[OURS]), timed(records[best], timings[best]))
    for record in found:
        database.put_result(record)
    forget_launchables()
    return found
