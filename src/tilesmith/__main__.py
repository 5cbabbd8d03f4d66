"""``python -m tilesmith``, and the command ``tilesmith``: the command line."""

import sys
import time

_BEGAN = time.monotonic()


def main() -> None:
    """Loads the command line; Ctrl-C while it loads shows no traceback."""
    try:
        from tilesmith.cli.main import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run(_BEGAN)


if __name__ == "__main__":
    main()
