"""``python -m tilesmith``: the command line."""

from tilesmith.cli.main import main

if __name__ == "__main__":
    main()
