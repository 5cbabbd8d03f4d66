"""Logging of the package in programs that do not configure logging."""

from __future__ import annotations

import logging
import sys

from tilesmith import env


class _Stderr(logging.Handler):
    """Writes to the current ``sys.stderr``, which may change between messages."""

    def emit(self, record: logging.LogRecord) -> None:
        if sys.stderr is not None:
            sys.stderr.write(f"{self.format(record)}\n")


def start_logging() -> None:
    """Take the level of TILESMITH_LOG; where the program has no handler, messages go to stderr, one line each."""
    logger = logging.getLogger("tilesmith")
    logger.setLevel(env.LOG.get().upper())
    if not logger.hasHandlers():  # Python alone would write warnings and errors only
        handler = _Stderr()
        handler.setFormatter(logging.Formatter("tilesmith: %(levelname)s: %(message)s"))
        logger.addHandler(handler)
