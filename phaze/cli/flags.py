"""Declares the flags of every mode. Imports nothing heavy, so that ``--help`` answers at once."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from phaze.cli.help_text import COLUMNS, TRAINING_GROUPS, HelpFormatter, usage_of
from phaze.cli.names import EXPORTED, LISTED, MODES, STUDY_MODES, WITHOUT_TABLES
from phaze.cli.parser import Parser, RemovedFlag, SetAction, add_one, add_table
from phaze.settings.request import setting_groups, settings_for
from phaze.studies.training_time.settings import all_settings
from phaze_common.errors import InputError
from phaze_common.stated_fields import Mode

_EPILOG = """Settings come from, weakest first: defaults, the {file} (the same
names as the flags), the command line, where a later flag or --set replaces an
earlier one. Names of models, devices, clusters ...: phaze list.

Exit status: 0 done, 2 wrong input, 3 {nothing},
1 failure, 130 interrupted, 143 terminated."""
_STUDY_EPILOG = _EPILOG.format(file="--config file", nothing="nothing feasible")
_EVALUATE_EPILOG = _EPILOG.format(file="--plan file", nothing="the plan does not fit in memory")
_EPILOGS = dict.fromkeys(STUDY_MODES, _STUDY_EPILOG) | dict.fromkeys(
    ("evaluate", "training-time"), _EVALUATE_EPILOG
)


def add_modes(parser: Parser) -> dict[str, Parser]:
    """Add a sub-command for every mode; returns them by name."""
    subparsers = parser.add_subparsers(
        dest="mode", metavar="MODE", required=True, prog=parser.prog, help=argparse.SUPPRESS
    )
    modes: dict[str, Parser] = {}
    for mode, purpose in MODES.items():
        sub = subparsers.add_parser(
            mode,
            usage=usage_of(mode),
            description=textwrap.fill(purpose, COLUMNS - 1),
            epilog=_EPILOGS.get(mode),
            formatter_class=HelpFormatter,
            allow_abbrev=False,
        )
        modes[mode] = sub
        _FLAGS[mode](sub)
        _add_common(sub)
        if mode not in WITHOUT_TABLES:
            sub.add_argument(
                "--wide",
                action="store_true",
                help="print all columns of tables, however narrow the terminal is",
            )
    return modes


DTYPES = ("float32", "bfloat16", "float16")
_PROFILED = {
    "model": "model whose operators are measured, as for run_solver",
    "sequence_length": "tokens per sample (default: the model's own)",
    "tp": "tensor parallel widths (default 1)",
    "micro_batch_size": "samples per micro-batch (default 1)",
    "sequence_parallel": "whether what tensor parallelism leaves whole is split along the "
    "sequence (default false)",
    "attention": "fused and tiled, or separate products (default flash)",
}


def _named(text: str) -> str:
    """What a flag names, which is something."""
    if not text.strip():
        raise argparse.ArgumentTypeError("no file is named; give the path of one")
    return text


def _file(text: str) -> Path:
    return Path(_named(text))


def _add_study(parser: Parser) -> None:
    parser.add_argument(
        "--phaze_exec_type",
        dest="mode",
        metavar="MODE",
        default=argparse.SUPPRESS,
        help="the mode, in the original's way",
    )
    add_table(parser, settings_for(Mode.SEARCH))
    parser.add_argument(
        "--config",
        type=_file,
        metavar="FILE",
        help="YAML file of settings; keys are the flags with underscores",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the size of the space and stop"
    )
    _add_run_code(parser)


def _add_run_solver(parser: Parser) -> None:
    _add_study(parser)
    parser.add_argument(
        "--parts",
        type=_parts,
        metavar="N",
        help="divide the design space into N parts, which tell each other of their best; search "
        "them apart and join them",
    )
    _add_executor(parser, "parts", "with --parts: ")


def _parts(text: str) -> int:
    """How many parts are asked for; whether there can be so many is for whoever divides the space
    to say."""
    from Estimator.chips.space_part import no_count

    try:
        return int(text)
    except ValueError:
        raise InputError(no_count(text)) from None


def _add_executor(parser: Parser, what: str, where: str = "") -> None:
    parser.add_argument(
        "--executor",
        choices=("joblib", "ray"),
        default="joblib",
        help=f"{where}what runs the {what} (default joblib)",
    )
    parser.add_argument(
        "--address",
        metavar="A",
        help="with --executor ray: the cluster's address (default: a local one)",
    )
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help=f"{where}{what} run at a time (default: one per core)",
    )


def _add_evaluate_settings(parser: Parser) -> None:
    add_table(parser, settings_for(Mode.EVALUATE))
    parser.add_argument(
        "--plan",
        dest="config",
        type=_file,
        metavar="FILE",
        help="YAML file of settings, keys are the flags with underscores; or the best.json of a "
        "search",
    )


def _add_evaluate(parser: Parser) -> None:
    _add_evaluate_settings(parser)
    parser.add_argument(
        "--from",
        dest="launcher",
        metavar="FILE",
        help="launch file of another program: a Megatron-LM command, a configuration of DeepSpeed, "
        "torchtitan (of several FILE:NAME), accelerate, NeMo or Megatron Bridge, or arguments of "
        "Hugging Face's Trainer; what the best plan of a search would save is told besides",
    )
    parser.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="KEY",
        help="with --from: price the launch without what this key of it changes, which no plan "
        "says; may be repeated, or a list with commas",
    )
    _add_run_code(parser)


def _add_compare(parser: Parser) -> None:
    _add_evaluate_settings(parser)
    what = (
        "traces of one rank each: torch.profiler's (.json, .json.gz) or Chakra execution "
        "traces (.et)"
    )
    parser.add_argument("runs", nargs="+", metavar="TRACE", help=what)
    parser.add_argument(
        "--iterations",
        type=int,
        metavar="N",
        help="iterations in a trace (default: those it marks, else 1)",
    )
    _add_run_code(parser)


def _add_export(parser: Parser) -> None:
    table = settings_for(Mode.EVALUATE)
    add_table(
        parser,
        replace(table, settings=tuple(each for each in table.settings if each.key != "output")),
    )
    parser.add_argument(
        "--output", metavar="FOLDER", help="folder of the files (default: NAME_export)"
    )
    parser.add_argument(
        "runs",
        nargs=1,
        metavar="RUN|PLAN",
        help="folder of a run, its best.json, or a YAML file of a plan",
    )
    parser.add_argument(
        "--to", required=True, metavar="NAME", help=f"program to launch with: {', '.join(EXPORTED)}"
    )
    parser.add_argument(
        "--job",
        metavar="slurm|kubernetes",
        help="also write a job file that starts it on every node",
    )
    parser.add_argument(
        "--nearest",
        action="store_true",
        help="export the nearest plan that the program can be told where it cannot be told this "
        "one, and say what that costs",
    )
    _add_force(parser)
    _add_run_code(parser)


def _add_training_time(parser: Parser) -> None:
    add_table(parser, all_settings(), {**TRAINING_GROUPS, **setting_groups()})
    parser.add_argument(
        "--plan",
        "--config",
        dest="config",
        type=_file,
        metavar="FILE",
        help="YAML file of settings, keys are the flags with underscores; or the best.json of a "
        "search",
    )
    _add_run_code(parser)


def _add_train(parser: Parser) -> None:
    parser.add_argument(
        "--plan",
        dest="config",
        type=_file,
        metavar="FILE",
        help="the best.json of a search, or a file that holds one plan by value",
    )
    parser.add_argument(
        "--model",
        dest="names",
        type=lambda text: (text,),
        metavar="NAME",
        help="of several models in the file (default: the first)",
    )
    parser.add_argument(
        "--steps", type=int, default=20, metavar="N", help="training steps in all (default 20)"
    )
    parser.add_argument(
        "--data",
        default="synthetic",
        metavar="FILE",
        help="synthetic (default), or a text, whose bytes are the tokens",
    )
    parser.add_argument(
        "--dtype",
        default="float32",
        metavar="NAME",
        help="number format of weights and products (default float32)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of weights and data (default 0)"
    )
    parser.add_argument(
        "--processes",
        dest="most_processes",
        type=int,
        default=16,
        metavar="N",
        help="most processes that may be started on this machine (default 16)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="also train 3 steps with one process and compare losses and parameters",
    )
    parser.add_argument(
        "--checkpoint-every",
        type=int,
        default=0,
        metavar="K",
        help="keep what is needed to go on every K steps (default: never)",
    )
    parser.add_argument(
        "--resume",
        type=_file,
        metavar="DIR",
        help="go on from a checkpoint, or from the last one of a run's folder",
    )
    parser.add_argument(
        "--output",
        metavar="DIR",
        help="folder of train.json, trace.json and checkpoints (default: train beside the plan's "
        "file)",
    )
    _add_force(parser)


def _add_validate(parser: Parser) -> None:
    parser.add_argument(
        "runs",
        nargs="?",
        type=lambda text: (text,),
        metavar="RUNS.csv",
        help="measured runs: typed columns as --typed writes them, a published table, or, with "
        "--device, a table of operators (default: the published runs that ship)",
    )
    for name in ("device", "cluster", "software"):
        add_one(
            parser,
            Mode.EVALUATE,
            name,
            f"{name} of all runs, by name or YAML file (default: as each run says)",
        )
    add_one(
        parser,
        Mode.EVALUATE,
        "output",
        "folder under which training graphs are kept (default: GraphExtractor/out)",
    )
    parser.add_argument(
        "--plot",
        metavar="FILE",
        help="also draw predicted against measured times into this .png, .svg or .pdf",
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="also tell what errors have in common, which constant is their cause, and what fills "
        "memory",
    )
    parser.add_argument(
        "--typed",
        metavar="OUT.csv",
        help="also write the runs as they were read, in typed columns, to be seen and corrected; "
        "null is not known. The columns: " + TYPED_COLUMNS,
    )
    _add_force(parser)


TYPED_COLUMNS = (  # of ``phaze.validation.typed_run``, which help texts do not import
    "source, model (listed, or any with dimensions), family, parameters, layers, hidden, heads, "
    "kv_heads, ffn, sequence_length, vocabulary, device, devices, cluster, devices_per_node, "
    "node_bytes_per_s (of a device, between nodes), software, year, attention (flash|eager), "
    "attention_kernel (flash_1|flash_2|flash_3|triton|cudnn), precision (fp16|bf16|fp8|fp32), "
    "gradient_bytes (2|4), overlap_gradients, overlap_tensor, blocking_launches, tp, pp, dp, cp, "
    "ep, etp, interleave, micro_batch_size, global_batch_samples, recompute (none|selective|full), "
    "sequence_parallel (true|false, as overlaps are), zero_stage (0 to 3), iteration_s, or "
    "tflops_per_device or mfu (a fraction) with flops_convention "
    "(hardware|model|model_causal|parameters), memory_bytes, memory_kind (allocated|reserved), "
    "notes"
)


def _add_calibrate(parser: Parser) -> None:
    add_one(
        parser,
        Mode.EVALUATE,
        "device",
        "device to start from, by name or YAML file; fits tables of operators",
    )
    add_one(
        parser,
        Mode.EVALUATE,
        "cluster",
        "cluster to start from, by name or YAML file; fits tables of collectives",
    )
    add_one(
        parser,
        Mode.EVALUATE,
        "software",
        "framework to start from, by name or YAML file; fits tables of what runs at once",
    )
    parser.add_argument(
        "--table",
        dest="tables",
        action="append",
        metavar="FILE",
        help="CSV of measurements; may be repeated",
        default=[],
    )
    parser.add_argument(
        "--runs",
        dest="runs_file",
        metavar="FILE",
        help="CSV of training runs, as of validate, to fit a device or a cluster to",
    )
    parser.add_argument("--output", metavar="FILE", help="YAML file to write")
    _add_force(parser)


def _add_profile(parser: Parser) -> None:
    for name in (
        "model",
        "sequence_length",
        "tp",
        "micro_batch_size",
        "sequence_parallel",
        "attention",
    ):
        add_one(parser, Mode.SEARCH, name, _PROFILED.get(name))
    add_one(
        parser,
        Mode.SEARCH,
        "devices",
        "devices of a cluster of this machine (default: its GPUs, or 8 processes)",
    )
    parser.add_argument("--output", metavar="DIR", help="database to write, or to go on with")
    parser.add_argument(
        "--dtype", choices=DTYPES, help="number format (default float32 on CPUs, bfloat16 on GPUs)"
    )
    parser.add_argument(
        "--device-kind",
        choices=("cpu", "cuda"),
        default="cpu",
        help="what runs the operators (default cpu)",
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=1,
        metavar="N",
        help="threads of an operator on CPUs (default 1)",
    )
    parser.add_argument(
        "--processes",
        type=int,
        nargs="*",
        default=[2, 4],
        metavar="N",
        help="group sizes of exchanges (default 2 4; none: no)",
    )
    parser.add_argument(
        "--no-passes", action="store_true", help="measure no whole passes beside the operators"
    )
    parser.add_argument(
        "--noise",
        type=float,
        default=0.2,
        metavar="X",
        help="spread that is said to be noise (default 0.2)",
    )
    parser.add_argument(
        "--cap",
        type=float,
        default=1.0,
        metavar="S",
        help="seconds to repeat one operator at most (default 1)",
    )


RUN_HELP = "folder of a finished run, as run_solver wrote it"


def _add_sweep(parser: Parser) -> None:
    parser.add_argument(
        "study",
        type=_named,
        metavar="STUDY.yaml",
        help="settings as for run_solver --config; each value of a list is a point of its own, a "
        "list in a list one value",
    )
    parser.add_argument(
        "--set",
        action=SetAction,
        table=settings_for(Mode.SEARCH),
        metavar="KEY=VALUE",
        help="a setting by its key, value in YAML; may be repeated",
    )
    parser.add_argument(
        "--output",
        metavar="DIR",
        help="folder of the table and of every point (default: Solver/output/NAME)",
    )
    _add_executor(parser, "points")
    parser.add_argument("--csv", action="store_true", help="also write the table as CSV")
    parser.add_argument("--dry-run", action="store_true", help="list the points and stop")
    _add_run_code(parser)


def _add_report(parser: Parser) -> None:
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help=f"{RUN_HELP}; with a second one, what changed between them; with more, or with the "
        "folder of a sweep, all points",
    )
    parser.add_argument(
        "--output", metavar="FILE", help="page to write (default: report.html in the run's folder)"
    )
    parser.add_argument(
        "--figures",
        metavar="DIR",
        help="also write every figure as SVG, PNG and PDF, and its data as parquet, into this "
        "folder",
    )
    parser.add_argument(
        "--points",
        choices=("all", "best", "none"),
        help="of many points: those whose own reports are written too, which the page leads to "
        "(default all)",
    )
    parser.add_argument(
        "--beside",
        metavar="FILE.csv",
        help="of many points: answers of others to draw beside the curves; columns source, "
        "devices, seconds, and settings by key",
    )
    _add_run_code(parser)
    _add_force(parser)


def _add_serve(parser: Parser) -> None:
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help=f"{RUN_HELP}, or the folder of a sweep; of several all points",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="H",
        help="address to listen on (default 127.0.0.1, this machine)",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=0,
        metavar="N",
        help="port to listen on (default: any that is free)",
    )
    _add_run_code(parser)


def _add_explain(parser: Parser) -> None:
    parser.add_argument("runs", nargs=1, metavar="RUN", help=RUN_HELP)
    parser.add_argument(
        "--instead",
        action="append",
        default=[],
        metavar="KEY=VALUE,...",
        help="an alternative to compare with, such as num_tc=4,width=256 or pp=8: the best design "
        "that has these values; may be repeated",
    )
    parser.add_argument(
        "--what-if",
        action="append",
        default=[],
        metavar="KEY=VALUE,...",
        help="other circumstances, such as hbm_bandwidth=2x, network_latency=0, "
        "prices.electricity=3x or devices=256: what the "
        "design would reach then, and the best there would be; may be repeated",
    )
    parser.add_argument(
        "--moldable",
        action=RemovedFlag,
        why="schedules on groups of cores gained less than 0.2 % of an iteration for every "
        "model measured (docs/explanation/schedule.md); leave it out",
    )
    _add_run_code(parser)


def _add_robust(parser: Parser) -> None:
    parser.add_argument("runs", nargs=1, metavar="RUN", help=RUN_HELP)
    parser.add_argument(
        "--samples",
        type=int,
        default=500,
        metavar="N",
        help="samples of the constants (default 500)",
    )
    parser.add_argument(
        "--contenders",
        type=int,
        default=24,
        metavar="N",
        help="other designs evaluated under every sample from the start, those nearest to the "
        "best in the run (default 24)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="of the samples, which repeat by it (default 0)",
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", help="processes (default: one per core)"
    )
    _add_run_code(parser)


def _add_force(parser: Parser) -> None:
    parser.add_argument(
        "--force",
        action="store_true",
        help="replace files that phaze did not write, or that were edited since",
    )


def _add_run_code(parser: Parser) -> None:
    parser.add_argument(
        "--run-code",
        action="append",
        default=[],
        metavar="FILE",
        help="a model.py that may be run though only a plan or a run names it; may be repeated",
    )


def _add_trace(parser: Parser) -> None:
    parser.add_argument("runs", nargs=1, metavar="RUN", help=RUN_HELP)
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="file to write (default: trace.json in the run's folder; a name that ends in .gz is "
        "compressed, - is stdout)",
    )
    _add_force(parser)


def _add_models(parser: Parser) -> None:
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="models to show, by name, dimensions or path (default: all that are listed)",
    )


def _add_list(parser: Parser) -> None:
    kinds = ", ".join(LISTED)
    parser.add_argument(
        "names",
        nargs="?",
        type=lambda text: (text,),
        metavar="KIND",
        help=f"one of {kinds} (default: the kinds)",
    )


def _add_completion(parser: Parser) -> None:
    parser.add_argument(
        "names",
        nargs="?",
        type=lambda text: (text,),
        metavar="SHELL",
        help="bash, zsh or fish (default bash)",
    )


def _add_accelerators(parser: Parser) -> None:
    add_one(parser, Mode.SEARCH, "design_space")
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="file to write (default Estimator/arch_configs/cores.json; - for stdout)",
    )
    _add_force(parser)


def _add_doctor(parser: Parser) -> None:
    parser.add_argument("--output", metavar="DIR", help="folder a run would write to")


def _add_common(parser: Parser) -> None:
    parser.add_argument(
        "--format",
        dest="output_format",
        choices=("table", "json"),
        default="table",
        help="form of the result on stdout (default table)",
    )
    parser.add_argument(
        "--verbose",
        "-v",
        action="store_true",
        help="log more, and show where an unexpected error came from",
    )
    parser.add_argument("--quiet", "-q", action="store_true", help="log warnings only, no progress")


_FLAGS: dict[str, Callable[[Parser], None]] = {
    **dict.fromkeys(STUDY_MODES, _add_study),
    "run_solver": _add_run_solver,
    "evaluate": _add_evaluate,
    "training-time": _add_training_time,
    "export": _add_export,
    "compare": _add_compare,
    "train": _add_train,
    "validate": _add_validate,
    "profile": _add_profile,
    "calibrate": _add_calibrate,
    "sweep": _add_sweep,
    "report": _add_report,
    "serve": _add_serve,
    "explain": _add_explain,
    "robust": _add_robust,
    "trace": _add_trace,
    "list": _add_list,
    "models": _add_models,
    "accelerators": _add_accelerators,
    "doctor": _add_doctor,
    "completion": _add_completion,
}
