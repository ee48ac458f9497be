"""The script: ``python phaze.py MODE ...`` runs the package ``phaze`` that lies beside it."""

import importlib.util
import os
import sys
from pathlib import Path


def _in_own_environment() -> None:
    """Go on in the environment ``setup.sh`` made, where this Python lacks the packages:
    ``python3 phaze.py`` just works."""
    python = Path(__file__).resolve().parent / ".venv" / "bin" / "python"
    lacking = importlib.util.find_spec("torch") is None
    if lacking and python.exists() and Path(sys.prefix).resolve() != python.parent.parent.resolve():
        os.execv(python, [str(python), *sys.argv])


if __name__ == "__main__":
    try:
        _in_own_environment()
        from phaze.__main__ import main
    except KeyboardInterrupt:
        sys.exit(130)  # as for every other interruption
    sys.exit(main())
