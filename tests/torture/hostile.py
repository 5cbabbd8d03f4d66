"""Sealed records with hostile fields, by every way that a record enters, through every mode: answers or typed errors.

Each record changes one to five fields of a good one, and lies in a store of its own, where a call meets it. Modes that
measure do so in earnest for every ``--measure``-th record; for the others a search is stood in for.

    python tests/torture/hostile.py [--records 500] [--measure 50] [--seed 0]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from homes import place
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from hostile_calls import GOOD, SOLVERS, ask_everything
from hostile_records import WAYS, can_be_put, clear, put, sealed, values_like
from tilesmith.db.records import Record
from tilesmith.dispatch import resolve
from tilesmith.errors import LaunchError


def stand_in(count: list[int], each: int) -> None:
    """Let one record in ``each`` be measured; the others get a record of the plain reference, and no time."""
    measure, timed = resolve._measure, resolve._timed

    def measured(request: Any, *rest: Any) -> None:
        if count[0] % each == 0:
            measure(request, *rest)
        else:
            request.layers.writable.put_result(Record(**GOOD | {"solver": "c_reference", "config": ""}))

    def time_of(*arguments: Any) -> Any:
        if count[0] % each == 0:
            return timed(*arguments)
        raise LaunchError("no time here")

    resolve._measure, resolve._timed = measured, time_of  # type: ignore[assignment]


def torment(records: int, each: int, number: int, home: Path) -> dict[str, Any]:
    count, wrong = [0], []
    stand_in(count, each)

    @seed(number)
    @settings(
        max_examples=records * 50, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(values=values_like(GOOD, SOLVERS), way=st.sampled_from(WAYS), trial=st.booleans())
    def one(values: dict[str, Any], way: str, trial: bool) -> None:
        row = sealed(values)
        if count[0] >= records or row is None or not can_be_put(row, way):
            return
        clear(home)
        count[0] += 1
        if trial:
            put(row, way, home, "trials")
        said = ask_everything([row], way, home)
        wrong.extend(f"{way}: {line} {values!a}"[:600] for line in said)

    one()
    return {"records": count[0], "wrong": wrong[:10], "exceptions": len(wrong)}


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--records", type=int, default=500)
    options.add_argument("--measure", type=int, default=50)
    options.add_argument("--seed", type=int, default=0)
    given_ = options.parse_args()
    begun = time.monotonic()
    logging.getLogger("tilesmith").propagate = False
    with tempfile.TemporaryDirectory(prefix="tilesmith-hostile-") as folder:
        place(Path(folder))
        os.environ["TILESMITH_LOG"] = "error"
        (Path(folder) / "store").mkdir()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            found = torment(given_.records, given_.measure, given_.seed, Path(folder) / "store")
    print(json.dumps({**found, "took_s": round(time.monotonic() - begun, 1)}))
    return 1 if found["exceptions"] or found["records"] < given_.records else 0


if __name__ == "__main__":
    sys.exit(main())
