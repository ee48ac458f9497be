"""``python -m phaze MODE ...``."""

import sys

from phaze.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
