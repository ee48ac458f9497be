"""``python -m third_party.phaze_icml24``."""

import sys

from third_party.phaze_icml24 import main

if __name__ == "__main__":
    sys.exit(main())
