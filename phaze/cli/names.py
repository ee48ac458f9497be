"""The modes, and the kinds of names that ``phaze list`` lists. Imports nothing heavy."""

from dataclasses import dataclass

STUDY_MODES = {
    "run_solver": "search the best accelerator and placement (default)",
    "extract_graph": "extract the training graphs of the models and stop",
    "prepopulate_estimates": "price all operators on all core configurations and stop",
}
OTHER_MODES = {
    "sweep": "run a study for every combination of the values it lists, on all cores or a "
    "cluster, and gather one table",
    "report": "draw a run, the difference of two, or the points of a sweep, as one self-contained "
    "HTML page",
    "serve": "the same page from a local server, where a click on a point shows its plan and asks "
    "what another would cost",
    "explain": "tell why the best design of a run is the best: what limits it, and what an "
    "alternative would cost",
    "robust": "tell whether the best design of a run survives what is not known exactly, and "
    "which constant decides",
    "trace": "write the schedules of a run as a timeline for Perfetto or chrome://tracing",
    "evaluate": "predict time and memory of a training plan on devices that exist, or on a "
    "designed chip",
    "training-time": "predict time, energy, money and carbon of a whole training, with a plan "
    "that is given or the best one",
    "export": "write the plan of a run or a file out for the program that launches it, such as "
    "Megatron-LM or torchtitan",
    "train": "train the plan of a file with local processes, and compare what it takes with what "
    "was predicted",
    "validate": "compare predictions with measured training runs",
    "compare": "tell where traces of a run and the prediction of its plan part, and what to "
    "calibrate",
    "profile": "measure the operators of a model and exchanges between processes on this machine, "
    "as a device to search on",
    "calibrate": "fit a device, a cluster or a framework to measured operators, collectives or "
    "both at once and write its YAML",
    "list": "list what can be named: models, devices, clusters, software, design spaces, "
    "technologies, memories, prices, chips",
    "models": "tell the sizes and tensor parallel widths of models, of listed ones or of your own",
    "accelerators": "write the accelerators of a design space with their areas (the original's "
    "cores.json)",
    "doctor": "check that everything needed is installed and working",
    "completion": "print a script that completes modes, flags and names in bash, zsh or fish",
}
EXPORTED = (
    "megatron_lm",
    "megatron_bridge",
    "torchtitan",
    "accelerate",
    "deepspeed",
    "hf_trainer",
    "chakra",
)  # --to of export
MODES = STUDY_MODES | OTHER_MODES
WITHOUT_TABLES = frozenset(
    {"report", "serve", "trace", "export"}
)  # what they print is the files they wrote


@dataclass(frozen=True)
class ListedKind:
    """What ``phaze list`` lists under a name: what it is, and the flags that take a name of it."""

    what: str
    flags: tuple[str, ...]


LISTED = {
    "models": ListedKind("models to train", ("--model",)),
    "devices": ListedKind("devices that exist, to train on", ("--device",)),
    "clusters": ListedKind("networks of devices", ("--cluster",)),
    "software": ListedKind("training frameworks on devices that exist", ("--software",)),
    "design-spaces": ListedKind("accelerators to design among", ("--design-space",)),
    "technologies": ListedKind("areas and energies of accelerators", ("--technology",)),
    "memories": ListedKind("memory of accelerators as it is sold", ("--memory",)),
    "prices": ListedKind("what chips, clusters and energy cost", ("--prices",)),
    "chips": ListedKind("known accelerators of the default design space", ("--chip",)),
}
