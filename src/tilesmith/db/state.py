"""The state of a database's file: a value that changes with the file, read without opening the database."""

from __future__ import annotations

import os
import stat

RECORDS = ".records"  # ends the name of the folder of records that stands for a file
_OTHERS = ("-journal", "-wal", RECORDS)  # beside a file that is being written, or of which more is to be read
_HEADER = 100
# Files beside a link do not belong to the link's target; opening a FIFO would wait.
_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def state_of(path: str) -> list[int | str] | None:
    """Which file it is, its times, size and header; empty where there is none, None where that tells too little.

    SQLite counts its transactions in the header: two within one tick of the file system's clock differ there. While one
    is under way, or has been left half done, there is a journal. The number of the device is left out: machines that
    share a file system number it each as they like.
    """
    try:
        descriptor = os.open(path, _FLAGS)
    except FileNotFoundError:
        state: list[int | str] = []
    except (OSError, ValueError):
        return None
    else:
        try:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode):
                return None
            header = os.read(descriptor, _HEADER)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        state = [about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns, header.hex()]
    for other in _OTHERS:
        if os.access(path + other, os.F_OK):
            return None
    return state
