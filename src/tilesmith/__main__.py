"""``python -m tilesmith``, and the command ``tilesmith``: the command line."""

import sys


def main() -> None:
    """Loads the command line; whoever stops it while it is being loaded sees no traceback."""
    try:
        from tilesmith.cli.main import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
