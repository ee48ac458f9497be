"""Which commands read which files. A new format or mode is a line here; the flags of modes follow
from the parser itself."""

from __future__ import annotations

# Command lines of bridges; all others are modes of phaze.
NEST, ICML24, AMPED = "third_party.nest", "third_party.phaze_icml24", "third_party.amped"
LAYOUTS = "third_party.transformer_perf_estimates.command_line"  # of one, too
AMPED_RUN = f"{AMPED} run amped.json --output out_amped"

SEQUENCE = "--sequence-length 16"
CHIPS = "run_solver --config study.yaml"
DEVICES = "run_solver --config study_device.yaml"
PLAN = "evaluate --plan plan.yaml"
PLAN_OF_CHIP = "evaluate --plan plan_chip.yaml"
CORES = "accelerators --design-space space.yaml --output cores.json"
OF_CHIPS = (CHIPS, PLAN_OF_CHIP, CORES)
OF_RUNS = (
    "report run --output page.html",
    "explain run",
    "trace run --output trace.json",
    "report run_device run --output page.html",
)
SWEEP = "sweep sweep.yaml --workers 1 --output out_sweep"
REPORT_SWEEP = "report out_sweep --output page.html --points none"
CALIBRATE = "calibrate --device device.yaml --output fitted.yaml --table"
CALIBRATE_CLUSTER = "calibrate --cluster cluster.yaml --output fitted.yaml --table nccl.csv"
COMPARE = "compare out_chakra/traces/iteration.0.et --plan plan.yaml"


def _of_model(name: str) -> tuple[str, ...]:
    model = f"--model {name} {SEQUENCE} --output out"
    hardware = "--design-space space.yaml --cluster cluster.yaml"
    return (
        f"extract_graph {model}",
        f"models {name}",
        f"evaluate {model} --device device.yaml --cluster cluster.yaml",
        f"run_solver {model} {hardware} --global-batch-size 8 --dry-run",
    )


# Commands that read a file, by its pattern below the working folder.
TARGETS: dict[str, tuple[str, ...]] = {
    "study.yaml": (
        *(CHIPS, f"{CHIPS} --dry-run", "extract_graph --config study.yaml"),
        "prepopulate_estimates --config study.yaml",
    ),
    "study_device.yaml": (DEVICES,),
    "plan.yaml": (PLAN, "training-time --plan plan.yaml --tokens 1e6"),
    "plan_chip.yaml": (PLAN_OF_CHIP,),
    "space.yaml": OF_CHIPS,
    "technology.yaml": OF_CHIPS,
    "platform.yaml": OF_CHIPS,
    "functions.yaml": OF_CHIPS,
    "prices.yaml": (f"{CHIPS} --prices prices.yaml",),
    "chip.yaml": (f"{CHIPS} --chip chip.yaml", PLAN_OF_CHIP),
    "cluster.yaml": (CHIPS, DEVICES, PLAN, CALIBRATE_CLUSTER),
    "device.yaml": (DEVICES, PLAN, f"{CALIBRATE} gemm.csv"),
    "software.yaml": (DEVICES, PLAN, "validate runs.csv --output out --software software.yaml"),
    "attention.yaml": (DEVICES, PLAN),
    "contention.yaml": (DEVICES, PLAN),
    **{name: _of_model(name) for name in ("llama.json", "mixtral.json", "neox.json", "vit.json")},
    "mine.py": (
        f"extract_graph --model mine.py {SEQUENCE} --output out",
        f"extract_graph --model mine.py {SEQUENCE} --tp 2 --output out",
    ),
    "run/best.json": (
        *("evaluate --plan run/best.json", "explain run --instead num_tc=1"),
        *OF_RUNS,
    ),
    "run/study.yaml": ("explain run --instead num_tc=1", *OF_RUNS),
    "run/manifest.json": OF_RUNS,
    "run/schedules.json.gz": OF_RUNS,
    "run/*.parquet": OF_RUNS,
    "run_device/best.json": (
        *("evaluate --plan run_device/best.json", "explain run_device"),
        *("trace run_device --output -", "training-time --plan run_device/best.json --tokens 1e6"),
    ),
    "sweep.yaml": (SWEEP, "sweep sweep.yaml --dry-run --output out_sweep"),
    "out_sweep/points/*/*": (SWEEP, REPORT_SWEEP),
    "out_sweep/*.*": (REPORT_SWEEP,),
    "others.csv": (f"{REPORT_SWEEP} --beside others.csv",),
    "out/GraphExtractor/out/**/*.gz": (CHIPS, "extract_graph --config study.yaml"),
    "out/Estimator/**/*.*": (CHIPS,),
    "out/points/**/*.*": (CHIPS,),
    "out_cores/Estimator/arch_configs/cores.json": (
        f"{CHIPS} --design-space phaze_icml24 --output out_cores",
    ),
    "runs.csv": ("validate runs.csv --output out",),
    "single.csv": ("validate single.csv --output out",),
    "gemm.csv": (f"{CALIBRATE} gemm.csv",),
    "softmax_A100.csv": (f"{CALIBRATE} softmax_A100.csv",),
    "matmul_A100.csv": (f"{CALIBRATE} matmul_A100.csv",),
    "nccl.csv": (CALIBRATE_CLUSTER,),
    "aceso/*.csv": (f"{CALIBRATE} aceso",),
    "nest.json": (f"{NEST} place nest.json",),
    "place.json": (f"{ICML24} place place.json",),
    "schedule.json": (f"{ICML24} schedule schedule.json",),
    "layouts.json": tuple(
        f"{LAYOUTS} {question} layouts.json"
        for question in ("evaluate", "search --top 2", "curves")
    ),
    "amped.json": (
        *(f"{AMPED_RUN} --GEMM --compute_graph --mat-dims", f"{AMPED_RUN} --as-published"),
        f"{AMPED} optimize amped.json",
    ),
    "lookup_tables.json": (f"{AMPED_RUN} --lookup-tables lookup_tables.json",),
    "out_chakra/traces/iteration.0.et": (COMPARE,),
}
# What base commands make, by the folder it lies in; graphs of the first are given to the others.
BUILD = {
    "out": CHIPS,
    "run": f"{CHIPS} --output run",
    "run_device": f"{DEVICES} --output run_device",
    "out_sweep": SWEEP,
    "out_cores": f"{CORES.removesuffix('cores.json')}out_cores/Estimator/arch_configs/cores.json",
    "out_chakra": "export plan.yaml --to chakra --output out_chakra",
}
# What flags are put behind where no file of the mode is damaged; else it is what reads the file.
ALONE = {"serve": "serve missing"}  # a run that is there would be served for ever
# Run before all others: they need no solver and no library that starts threads.
WARMING = (
    f"{DEVICES} --output out_warm",
    PLAN,
    f"extract_graph --model neox.json {SEQUENCE} --output out_warm",
)


def commands_of(mode: str) -> list[str]:
    """Commands of a mode that flags may be put behind."""
    every = dict.fromkeys(command for commands in TARGETS.values() for command in commands)
    own = [command for command in every if command.split()[0] == mode]
    return own or [ALONE.get(mode, mode)]
