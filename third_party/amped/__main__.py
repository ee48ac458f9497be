"""``python -m third_party.amped``."""

import sys

from third_party.amped.command_line import main

if __name__ == "__main__":
    sys.exit(main())
