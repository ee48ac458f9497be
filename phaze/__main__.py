"""``python -m phaze MODE ...``, and the command ``phaze``."""

import sys

INTERRUPTED = 130  # as for every other interruption


def main() -> int:
    """Run the command line of the process and return its exit status."""
    try:
        from phaze.cli.main import main as run
    except KeyboardInterrupt:  # what says so is not imported yet
        return INTERRUPTED
    return run()


if __name__ == "__main__":
    sys.exit(main())
