"""The process of a job, which writes down how its command ended.

``python -m tilesmith.lab.background FOLDER COMMAND...``
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tilesmith.lab.jobs import end_job


def main(folder: Path, command: list[str]) -> int:
    # A shell starts what it puts in the background with Ctrl-C ignored, and a child inherits that; the command is
    # stopped by it, as the other process of this group, and this one waits for its end.
    signal.signal(signal.SIGINT, lambda *_: None)
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
        status = process.wait()
    end_job(folder, status)
    return status


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
