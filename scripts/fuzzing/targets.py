"""Which commands read which files. A new format or mode is a line here; the flags of modes follow
from the parser itself."""

from __future__ import annotations

from dataclasses import dataclass

# Command lines of bridges; all others are modes of phaze.
NEST, ICML24, AMPED = "third_party.nest", "third_party.phaze_icml24", "third_party.amped"
AMPED_RUN, AMPED_OPTIMIZE = (
    f"{AMPED} run amped.json --output out_amped",
    f"{AMPED} optimize amped.json",
)
LAYOUTS = "third_party.transformer_perf_estimates.command_line"  # of one, too
RUN_FILES = (
    "best.json",
    "study.yaml",
    "manifest.json",
    "schedules.json.gz",
    "designs.parquet",
    "plans.parquet",
)
SEQUENCE = "--sequence-length 16"


@dataclass(frozen=True)
class Target:
    """Files (a pattern below the working folder) that are mutated and then read by one of the
    ``commands``."""

    files: str
    weight: float
    commands: tuple[str, ...]


def _config(name: str) -> Target:
    model = f"--model {name} {SEQUENCE} --output out"
    return Target(
        name,
        2.0,
        (
            f"extract_graph {model}",
            f"models {name}",
            f"evaluate {model} --device device.yaml --cluster cluster.yaml",
            f"run_solver {model} --design-space space.yaml --cluster cluster.yaml "
            "--global-batch-size 8 --dry-run",
        ),
    )


CHIPS, DEVICES, PLAN = (
    "run_solver --config study.yaml",
    "run_solver --config study_device.yaml",
    "evaluate --plan plan.yaml",
)
OF_CHIPS = (
    CHIPS,
    "evaluate --plan plan_chip.yaml",
    "accelerators --design-space space.yaml --output cores.json",
)
OF_RUNS = (
    "report run --output page.html",
    "explain run",
    "trace run --output trace.json",
    "report run_device run --output page.html",
)
CALIBRATE = "calibrate --device device.yaml --output fitted.yaml --table"

TARGETS = (
    Target(
        "study.yaml",
        6,
        (
            CHIPS,
            f"{CHIPS} --dry-run",
            "extract_graph --config study.yaml",
            "prepopulate_estimates --config study.yaml",
        ),
    ),
    Target("study_device.yaml", 4, (DEVICES,)),
    Target("plan.yaml", 5, (PLAN,)),
    Target("plan_chip.yaml", 2, ("evaluate --plan plan_chip.yaml",)),
    Target("space.yaml", 5, OF_CHIPS),
    Target("technology.yaml", 4, OF_CHIPS),
    Target("platform.yaml", 4, OF_CHIPS),
    Target("functions.yaml", 3, OF_CHIPS),
    Target("chip.yaml", 3, (f"{CHIPS} --chip chip.yaml", "evaluate --plan plan_chip.yaml")),
    Target(
        "cluster.yaml",
        6,
        (
            CHIPS,
            DEVICES,
            PLAN,
            "calibrate --cluster cluster.yaml --table nccl.csv --output fitted.yaml",
        ),
    ),
    Target("device.yaml", 6, (DEVICES, PLAN, f"{CALIBRATE} gemm.csv")),
    Target(
        "software.yaml",
        4,
        (DEVICES, PLAN, "validate runs.csv --output out --software software.yaml"),
    ),
    *(_config(name) for name in ("llama.json", "mixtral.json", "neox.json", "vit.json")),
    Target(
        "mine.py",
        4,
        (
            f"extract_graph --model mine.py {SEQUENCE} --output out",
            f"extract_graph --model mine.py {SEQUENCE} --tp 2 --output out",
        ),
    ),
    Target("run/best.json", 4, ("evaluate --plan run/best.json", *OF_RUNS)),
    Target(
        "run_device/best.json",
        3,
        (
            "evaluate --plan run_device/best.json",
            "explain run_device",
            "trace run_device --output -",
        ),
    ),
    *(Target(f"run/{name}", 2, OF_RUNS) for name in RUN_FILES[1:]),
    *(Target(f"run/{name}", 0.5, ("explain run --instead num_tc=1",)) for name in RUN_FILES[:2]),
    Target(
        "sweep.yaml",
        4,
        (
            "sweep sweep.yaml --workers 1 --output out_sweep",
            "sweep sweep.yaml --dry-run --output out_sweep",
        ),
    ),
    Target("out_sweep/points/*/*", 3, ("sweep sweep.yaml --workers 1 --output out_sweep",)),
    Target("out_sweep/*.*", 3, ("report out_sweep --output page.html --points none",)),
    Target("out_sweep/points/*/*", 2, ("report out_sweep --output page.html --points none",)),
    Target(
        "others.csv", 2, ("report out_sweep --output page.html --points none --beside others.csv",)
    ),
    Target("out/GraphExtractor/out/**/*.gz", 3, (CHIPS, "extract_graph --config study.yaml")),
    Target("out/Estimator/**/*.*", 2, (CHIPS,)),
    Target("out/points/**/*.*", 2, (CHIPS,)),
    Target(
        "out_cores/Estimator/arch_configs/cores.json",
        3,
        ("run_solver --config study.yaml --design-space phaze_icml24 --output out_cores",),
    ),
    Target("runs.csv", 4, ("validate runs.csv --output out",)),
    Target("single.csv", 3, ("validate single.csv --output out",)),
    *(
        Target(name, 2, (f"{CALIBRATE} {name}",))
        for name in ("gemm.csv", "softmax_A100.csv", "matmul_A100.csv")
    ),
    Target(
        "nccl.csv", 2, ("calibrate --cluster cluster.yaml --output fitted.yaml --table nccl.csv",)
    ),
    Target("aceso/*.csv", 2, (f"{CALIBRATE} aceso",)),
    Target("nest.json", 3, (f"{NEST} place nest.json",)),
    Target("place.json", 3, (f"{ICML24} place place.json",)),
    Target("schedule.json", 3, (f"{ICML24} schedule schedule.json",)),
    Target(
        "layouts.json",
        4,
        (
            f"{LAYOUTS} evaluate layouts.json",
            f"{LAYOUTS} search layouts.json --top 2",
            f"{LAYOUTS} curves layouts.json",
        ),
    ),
    Target(
        "amped.json",
        3,
        (
            f"{AMPED_RUN} --GEMM --compute_graph --mat-dims",
            f"{AMPED_RUN} --as-published",
            AMPED_OPTIMIZE,
        ),
    ),
    Target(
        "out_chakra/traces/iteration.0.et",
        2,
        ("compare out_chakra/traces/iteration.0.et --plan plan.yaml",),
    ),
    Target("lookup_tables.json", 1, (f"{AMPED_RUN} --lookup-tables lookup_tables.json",)),
)

# What flags are added to, by mode; of a mode that is not here, the mode alone.
BASES: dict[str, tuple[str, ...]] = {
    "run_solver": (CHIPS, DEVICES, f"{CHIPS} --dry-run"),
    "extract_graph": (
        "extract_graph --config study.yaml",
        f"extract_graph --model llama.json {SEQUENCE} --output out",
    ),
    "prepopulate_estimates": ("prepopulate_estimates --config study.yaml",),
    "evaluate": (
        PLAN,
        "evaluate --plan plan_chip.yaml",
        "evaluate --plan run/best.json",
        "evaluate --plan run_device/best.json",
    ),
    "training-time": (
        "training-time --plan plan.yaml --tokens 1e6",
        "training-time --plan run_device/best.json --tokens 1e6",
    ),
    "validate": ("validate runs.csv --output out",),
    "calibrate": ("calibrate --device device.yaml --table gemm.csv --output fitted.yaml",),
    "sweep": ("sweep sweep.yaml --workers 1 --output out_sweep",),
    "report": (
        "report run --output page.html",
        "report run_device run --output page.html",
        "report out_sweep --output page.html --points none",
    ),
    "explain": ("explain run", "explain run_device"),
    "trace": ("trace run --output trace.json", "trace run_device --output -"),
    "models": ("models gpt2", "models llama.json"),
    "compare": ("compare out_chakra/traces/iteration.0.et --plan plan.yaml",),
    "accelerators": ("accelerators --design-space space.yaml --output cores.json",),
}

# What is run once, before anything is mutated; all must succeed. Those that write elsewhere get the
# graphs of the earlier ones; the first ones extract them.
SHARING = ("run", "run_device", "out_sweep")
BUILD = (
    CHIPS,
    DEVICES,
    f"{CHIPS} --output run",
    f"{DEVICES} --output run_device",
    "sweep sweep.yaml --workers 1 --output out_sweep",
    "accelerators --design-space space.yaml --output out_cores/Estimator/arch_configs/cores.json",
    "validate runs.csv --output out",
    "validate single.csv --output out",
    "export plan.yaml --to chakra --output out_chakra",
)
EXTRACTING = 2
WARM = (
    f"{DEVICES} --output out_warm",
    PLAN,
    f"extract_graph --model neox.json {SEQUENCE} --output out_warm",
)  # they need no solver and no library that starts threads
