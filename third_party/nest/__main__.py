"""``python -m third_party.nest``."""

import sys

from third_party.nest import main

if __name__ == "__main__":
    sys.exit(main())
