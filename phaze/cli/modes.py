"""The modes, each a file of its own with a record of what it is given and what runs it, in the
order in which help lists them."""

from importlib import import_module

from phaze.cli.mode import Mode

DEFAULT_MODE = "run_solver"
FILES = (
    "run_solver",
    "evaluate",
    "training_time",
    "sweep",
    "extract_graph",
    "prepopulate_estimates",
    "report",
    "serve",
    "explain",
    "robust",
    "trace",
    "profile",
    "validate",
    "compare",
    "calibrate",
    "accelerators",
    "export",
    "train",
    "listing",
    "models",
    "doctor",
    "completion",
)
MODES: dict[str, Mode] = {
    mode.name: mode for mode in (import_module(f"phaze.cli.{each}").MODE for each in FILES)
}
