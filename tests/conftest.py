"""Its folder is where tests find what they share (``torch_answer``)."""

from __future__ import annotations

import contextlib
import signal

# A shell starts background jobs with SIGINT ignored, and children inherit it; the tests that interrupt need it.
with contextlib.suppress(ValueError):  # not in the main thread
    signal.signal(signal.SIGINT, signal.default_int_handler)
