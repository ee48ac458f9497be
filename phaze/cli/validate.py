"""``phaze validate``: predictions against measured training runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from phaze.cli import mode
from phaze.cli.exit_status import DONE, FAILED
from phaze.cli.printing import print_answer
from phaze.settings.folders import check_output, folders_of
from phaze_common.choices import Precision
from phaze_common.errors import InputError
from phaze_common.files import named_file, output_file, user_path
from phaze_common.settings import COMMAND_LINE
from phaze_common.suggestions import choice
from phaze_common.written_files import check_replaceable

if TYPE_CHECKING:
    from phaze.validation.own_plan_runs import PricedFile
    from phaze.validation.records import ValidationReport

logger = logging.getLogger(__name__)

HARDWARE = ("device", "cluster", "software")
PICTURES = (".png", ".svg", ".pdf")


TYPED_COLUMNS = (  # of ``phaze.validation.typed_run``, which help texts do not import
    "source, model (listed, or any with dimensions), family, parameters, layers, hidden, heads, "
    "kv_heads, ffn, sequence_length, vocabulary, device, devices, cluster, devices_per_node, "
    "node_bytes_per_s (of a device, between nodes), software, year, attention (flash|eager), "
    f"attention_kernel (flash_1|flash_2|flash_3|triton|cudnn), precision ({'|'.join(Precision)}), "
    "optimizer (adam|sgd|sgd_momentum|muon), "
    "gradient_bytes (2|4), moment_dtype (fp32|bf16|fp16|fp8), main_weight_dtype "
    "(fp32|bf16|fp16), fp8_weights, offloaded_activations (a fraction), overlap_gradients, "
    "overlap_tensor, blocking_launches, fused_gradients, dispatcher "
    "(alltoall|allgather|deepep|hybridep), dispatch_fp8, overlap_experts "
    "(none|shared|batches|delayed), expert_load, "
    "cuda_graphs (none|attn|router|attn_router|layer|iteration), tp, pp, dp, cp, ep, etp, "
    "interleave, micro_batch_size, global_batch_samples, recompute "
    "(none|selective|full, or modules, as moe_act+layernorm), "
    "sequence_parallel (true|false, as overlaps are), zero_stage (0 to 3), shard_groups, "
    "iteration_s, or tflops_per_device or mfu (a fraction) with flops_convention "
    "(hardware|model|model_causal|parameters), memory_bytes, memory_kind "
    "(allocated|allocated_last_stage|reserved_by_torch|reserved), notes"
)
_DEFAULT = "of all runs, by name or YAML file (default: as each run says)"
_SETTINGS = {
    **{each: f"{each} {_DEFAULT}" for each in HARDWARE},
    "output": "folder under which training graphs are kept (default: GraphExtractor/out)",
}


@dataclass(frozen=True, kw_only=True)
class Validate(mode.Command):
    """Compare predictions with measured training runs."""

    settings: Mapping[str, object] = mode.setting_flags(mode.plan_settings, only=_SETTINGS)
    runs: str | None = mode.word(
        None,
        "measured runs: typed columns as --typed writes them, a published table, or, with "
        "--device, a table of operators (default: the published runs that ship)",
        "RUNS.csv",
    )
    plot: str | None = mode.flag(
        None, "also draw predicted against measured times into this .png, .svg or .pdf", "FILE"
    )
    explain: bool = mode.flag(
        False,
        "also tell what errors have in common, which constant is their cause, and what fills "
        "memory",
    )
    typed: str | None = mode.flag(
        None,
        "also write the runs as they were read, in typed columns, to be seen and corrected; null "
        "is not known. The columns: " + TYPED_COLUMNS,
        "OUT.csv",
    )
    force: bool = mode.force_flag()


def run(command: Validate) -> int:
    """Predict every run of the table, print the errors, and draw them where asked to."""
    named = mode.plan_settings().read(command.settings, COMMAND_LINE)
    device, cluster, software = (
        named_file(key, named[key]) if key in named else None for key in HARDWARE
    )
    output = user_path(named["output"]) if "output" in named else None
    runs_file = None if command.runs is None else user_path(command.runs)
    if output is not None:
        check_output(output)
    picture = None if command.plot is None else _picture(command.plot, force=command.force)
    typed = None if command.typed is None else _typed(command.typed, runs_file, force=command.force)
    from phaze.validation.operator_tables import has_operators

    if runs_file is not None and has_operators(runs_file):
        return _operators(command, runs_file, device, cluster, software)
    from phaze.report.tables.validation_tables import report_json, report_tables
    from phaze.validation.run import validate as compare

    progress = command.progress
    report = compare(
        runs_file,
        device,
        cluster,
        software,
        folders_of(output).graphs,
        progress,
        partial(_priced, output),
        typed,
    )
    explained = None
    if command.explain:
        from phaze.validation.explained import explain_errors

        explained = explain_errors(report.runs)
    print_answer(
        report_json(report, explained).decode(), lambda: report_tables(report, explained), command
    )
    if picture is not None:
        from phaze.report.validation_plot import draw

        draw(report, picture)
        logger.info("predicted against measured times are drawn in %s", picture)
    return _status(report)


def _status(report: ValidationReport) -> int:
    """Done where half of the lines were priced at least; else that is said, and it failed."""
    priced, skipped = report.overall.rows, report.overall.skipped
    if skipped <= priced:
        return DONE
    logger.warning(
        "%d of %d lines were priced; the table 'skipped' has the reason for each of the others",
        priced,
        priced + skipped,
    )
    return FAILED


def _operators(
    command: Validate, table: Path, device: str | None, cluster: str | None, software: str | None
) -> int:
    from phaze.report.tables.operator_tables import operator_tables
    from phaze.validation.operator_tables import validate_operators
    from phaze_common.records import to_json

    others = {
        "--cluster": cluster,
        "--plot": command.plot,
        "--typed": command.typed,
        "--explain": command.explain or None,
    }
    for flag, value in others.items():
        if value is not None:
            raise InputError(
                f"{flag} is about training runs, but {table} is a table of operators; leave it out"
            )
    report = validate_operators(table, device, software)
    print_answer(to_json(report).decode(), lambda: operator_tables(report), command)
    return DONE


def _priced(output: Path | None, plan: Path, database: Path) -> PricedFile:
    """A plan of our own on a machine that was profiled."""
    from phaze.runs.plan_files import evaluate_request
    from phaze.studies.evaluation import evaluated
    from phaze.validation.own_plan_runs import PricedFile

    hardware = {"device": str(database)} | ({} if output is None else {"output": str(output)})
    evaluation = evaluated(evaluate_request(plan, hardware))
    return PricedFile(evaluation.plan, evaluation.iteration)


def _typed(text: str, runs_file: Path | None, *, force: bool) -> Path:
    path = output_file(text, flag="--typed")
    if runs_file is not None and path.exists() and runs_file.exists() and path.samefile(runs_file):
        raise InputError(f"--typed {text!r} is the table that is read; give another file")
    return _replaceable(path, "--typed", force=force)


def _picture(text: str, *, force: bool) -> Path:
    path = output_file(text, flag="--plot")
    if path.suffix.lower() not in PICTURES:
        raise InputError(
            f"--plot {text!r} is no PNG, SVG or PDF; give a file name that ends in "
            f"{choice(PICTURES)}"
        )
    return _replaceable(path, "--plot", force=force)


def _replaceable(path: Path, flag: str, *, force: bool) -> Path:
    check_replaceable(path.parent, {path.name: None}, force=force, flag=flag)
    return path


MODE = mode.Mode("validate", mode.CHECK_AND_FIT, Validate, run)
