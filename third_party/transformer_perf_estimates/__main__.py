"""``python -m third_party.transformer_perf_estimates``."""

import sys

from .command_line import main

if __name__ == "__main__":
    sys.exit(main())
