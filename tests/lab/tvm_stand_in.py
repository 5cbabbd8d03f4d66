"""An environment of TVM in which no TVM is: its interpreter answers as the tuner does."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tilesmith.compare.tvm.environment import PINS, environment

_TUNER = """#!{python}
import json, os, pathlib, sys, time
asked = json.load(sys.stdin)
folder = pathlib.Path(asked["folder"])
(folder / "asked.json").write_text(json.dumps(asked))
match os.environ.get("TVM_DOES", "work"):
    case "hang": time.sleep(600)
    case "crash": os.abort()
log = folder / "log"
done = len(log.read_text()) if log.exists() else 0
log.write_text("x" * max(done, asked["trials"]))
pathlib.Path(asked["out"]).write_text("no library")
state = dict(trials=max(done, asked["trials"]), best_us=12.5, before=done)
print("told: " + json.dumps(state | {{"exported": True}}))
"""


def stand_in() -> None:
    """Put it where ``tilesmith gemm setup tvm`` makes the environment."""
    python = environment() / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(_TUNER.format(python=sys.executable))
    python.chmod(0o755)
    (environment() / "ready").write_text("\n".join(PINS))


def asked() -> list[dict[str, object]]:
    """What the tuner was asked for, for each product."""
    return [json.loads(path.read_text()) for path in sorted(Path(environment().parent).glob("*.trials/asked.json"))]
