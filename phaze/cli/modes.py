"""One function per execution mode: asks the rooms, prints the answer, returns the exit status."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from phaze.cli.arguments import Command
from phaze.cli.calibrate import calibrate
from phaze.cli.compare import compare
from phaze.cli.completion import completion
from phaze.cli.evaluate import evaluate
from phaze.cli.exit_status import DONE, FAILED, NOTHING_FEASIBLE
from phaze.cli.explain import explain
from phaze.cli.export import export
from phaze.cli.listing import listing
from phaze.cli.models import models
from phaze.cli.parts import searched_in_parts
from phaze.cli.printing import print_answer, print_rows
from phaze.cli.profile import profile
from phaze.cli.report import report
from phaze.cli.robust import robust
from phaze.cli.serve import serve
from phaze.cli.sweep import sweep
from phaze.cli.trace import trace
from phaze.cli.train import train
from phaze.cli.training_time import training_time
from phaze.cli.validate import validate
from phaze_common.echo import say
from phaze_common.errors import InputError

if TYPE_CHECKING:
    from GraphExtractor.graph import GraphKey, ModelGraph
    from phaze.settings.request import Request
    from phaze_common.progress import Progress

logger = logging.getLogger(__name__)

STDOUT = "-"
VARYING = ("cp", "ep", "sequence_parallel")  # of graphs: a column where they do


def run_solver(command: Command) -> int:
    """Search the study and print the best accelerator and plan; with a device the best plan on
    it."""
    in_parts = command.parts is not None
    if not in_parts and (
        command.executor != "joblib" or command.workers is not None or command.address is not None
    ):
        raise InputError(
            "--executor, --workers and --address are about the parts of a search; add --parts, or "
            "leave them out"
        )
    request = _request(command)
    if command.dry_run:
        return _print_size(request, command)
    from Estimator.plans.results import Status
    from phaze.report.tables.search_tables import print_result
    from phaze.runs.run_directory import best_json

    if in_parts:
        result, failed = searched_in_parts(request, command, _progress(command))
    else:
        from phaze.studies.search_run import run_search

        result, failed = run_search(request, _progress(command)), False
    if command.output_format == "json":
        say(sys.stdout, best_json(result).decode().splitlines())
    else:
        print_result(result, sys.stdout, wide=command.wide)
    if failed:
        return FAILED
    if result.best is not None or (
        result.heterogeneous is not None and result.heterogeneous.best is not None
    ):
        return DONE
    return NOTHING_FEASIBLE if result.status is Status.INFEASIBLE else FAILED


def extract_graph(command: Command) -> int:
    """Extract the graphs of the study, or find them on disk, and print what is in them."""
    request = _request(command)
    if command.dry_run:
        return _print_size(request, command)
    rows = [
        _described(graph) | _by_bytes(graph, request)
        for graph in _graphs(request, _progress(command))
    ]
    unused = () if any(row["sparse_parameters"] for row in rows) else ("sparse_parameters",)
    spared = (*unused, "saved_bytes", "distinct_layers", "operators", "tp")
    print_rows(
        "training graphs, per device",
        rows,
        command,
        spared,
        json_only=[*_alike(rows), "priced_by_bytes"],
    )
    logger.info("graphs are in %s", request.folders.graphs)
    return DONE


def prepopulate_estimates(command: Command) -> int:
    """Price the operators of the study's graphs on all core configurations and print how many there
    are."""
    request = _request(command)
    if request.on_devices:
        raise InputError(
            "estimates are tables over accelerators to design, but the device is given; leave "
            "--device out"
        )
    if command.dry_run:
        return _print_size(request, command)
    from Estimator.chips.latency_table import load_or_populate
    from phaze.settings.designed_chips import design_space_of, designed_accelerators

    progress, folder = _progress(command), request.folders.estimates
    accelerators, platform = designed_accelerators(request), design_space_of(request).platform
    rows = []
    for graph in _graphs(request, progress):
        key = graph.key
        with progress.phase(
            f"operator latencies of {key.model}, micro-batch {key.micro_batch_size}, tp {key.tp}", 1
        ) as advance:
            load_or_populate([graph], accelerators, platform, folder)
            advance(1)
        rows.append(
            {
                "model": key.label,
                "micro_batch_size": key.micro_batch_size,
                "sequence_length": _sequence_length(key),
                **_degrees(key),
                "tensor_core_configurations": len(accelerators.tensor_cores),
                "vector_core_configurations": len(accelerators.vector_cores),
            }
        )
    print_rows("operator estimates", rows, command, json_only=_alike(rows))
    logger.info("estimates are in %s", folder)
    return DONE


def accelerators(command: Command) -> int:
    """Write the accelerators of a design space in the original's cores.json format."""
    from Estimator.chips.cores_file import cores_json
    from Estimator.chips.design_space_files import load_design_space
    from phaze.settings.designed_chips import CORES
    from phaze.settings.folders import folders_of
    from phaze.settings.request import HardwareSettings, settings_for
    from phaze_common.files import named_file, output_file
    from phaze_common.stated_fields import Mode
    from phaze_common.written_files import write_output

    given = settings_for(Mode.SEARCH).read(command.given, "command line").get("design_space")
    name = named_file("design_space", given or str(HardwareSettings.design_space))
    generated = load_design_space(name).generate()
    if command.output == STDOUT:
        say(sys.stdout, cores_json(generated).decode().splitlines())
        return DONE
    output = (
        str(folders_of(None).arch_configs / CORES) if command.output is None else command.output
    )
    path = output_file(output, ", or - for standard output")
    if path.suffix != ".json":
        raise InputError(
            f"--output {path} would not be taken for accelerators; give a name that ends in .json"
        )
    write_output(path, cores_json(generated), force=command.force)
    row = {
        "design_space": name,
        "accelerators": len(generated),
        "tensor_core_configurations": len(generated.tensor_cores),
        "vector_core_configurations": len(generated.vector_cores),
        "smallest_mm2": round(float(generated.area_mm2.min()), 4),
        "largest_mm2": round(float(generated.area_mm2.max()), 4),
        "file": str(path),
    }
    print_rows("accelerators", [row], command)
    return DONE


def doctor(command: Command) -> int:
    """Check the installation and print what was found; fails if something needed is missing."""
    from phaze.cli.doctor import examine
    from phaze.cli.installed import Verdict
    from phaze.settings.folders import check_output, folders_of
    from phaze_common.files import user_path

    output = None if command.output is None else user_path(command.output)
    if output is not None:
        check_output(output)
    findings = examine(folders_of(output, "study"))
    print_rows("doctor", [asdict(finding) for finding in findings], command)
    return FAILED if any(finding.verdict is Verdict.MISSING for finding in findings) else DONE


RUNNERS: dict[str, Callable[[Command], int]] = {
    "run_solver": run_solver,
    "extract_graph": extract_graph,
    "prepopulate_estimates": prepopulate_estimates,
    "evaluate": evaluate,
    "training-time": training_time,
    "export": export,
    "compare": compare,
    "train": train,
    "validate": validate,
    "profile": profile,
    "calibrate": calibrate,
    "sweep": sweep,
    "report": report,
    "serve": serve,
    "explain": explain,
    "robust": robust,
    "trace": trace,
    "list": listing,
    "models": models,
    "accelerators": accelerators,
    "doctor": doctor,
    "completion": completion,
}


def _request(command: Command) -> Request:
    from GraphExtractor.permission import files_of_study
    from phaze.settings.config_files import MODELS, read_config
    from phaze.settings.resolve import resolve

    config = {} if command.config is None else read_config(command.config)
    if command.config is not None and not config and MODELS not in command.given:
        raise InputError(
            f"{command.config} is empty; add what is to be trained, such as 'model: bertlarge', "
            "or give --model"
        )
    run_code = files_of_study(command.config, command.run_code)
    request = resolve(config, command.given, source=str(command.config), run_code=run_code)
    if request.code.withheld and not command.dry_run:
        from phaze.settings.problem import check_code

        check_code(request)
    for note in request.notes:
        logger.info("%s", note)
    return request


def _progress(command: Command) -> Progress:
    from phaze_common.progress import progress_for

    return progress_for(sys.stderr, quiet=command.quiet)


def _graphs(request: Request, progress: Progress) -> Iterator[ModelGraph]:
    """The graphs that the search of ``request`` needs, model after model."""
    from Estimator.coverage import check_functions
    from GraphExtractor.storage import load_or_extract
    from phaze.settings.problem import graph_keys, hardware_of

    known = hardware_of(request).known_functions
    for keys in graph_keys(request):
        with progress.phase(f"training graphs of {keys[0].model}", len(keys)) as advance:
            for key in keys:
                graph = load_or_extract(
                    key, request.folders.graphs, request.output.force_reextract_model, request.code
                )
                check_functions([graph], known, strict=request.search.strict)
                advance(1)
                yield graph


def _described(graph: ModelGraph) -> dict[str, object]:
    """The FLOPs are those of all products; the ``masked`` ones among them belong to scores that
    masks leave out.

    ``sparse_parameters`` are those of tables whose gradient is that of the rows that were read.
    """
    from Estimator.plans.layer_costs import layer_sizes
    from GraphExtractor.graph import Recompute
    from GraphExtractor.score_mask import masked_flops, masked_scores

    length = graph.key.sequence_length
    layers = [graph.layers[index] for index in graph.sequence]
    return {
        "model": graph.key.label,
        "micro_batch_size": graph.key.micro_batch_size,
        "sequence_length": _sequence_length(graph.key),
        **_degrees(graph.key),
        "layers": len(layers),
        "distinct_layers": len(graph.layers),
        "operators": sum(
            len(layer.forward.operators) + len(layer.backward.operators) for layer in layers
        ),
        "parameters": sum(layer.parameter_count - layer.tied_count for layer in layers),
        "sparse_parameters": sum(layer.sparse_parameter_count for layer in layers),
        "forward_gflops": sum(layer.forward.flops for layer in layers) / 1e9,
        "backward_gflops": sum(layer.backward.flops for layer in layers) / 1e9,
        "masked_forward_gflops": sum(
            masked_flops(layer.forward.operators, length) for layer in layers
        )
        / 1e9,
        "masked_backward_gflops": sum(
            masked_flops(layer.backward.operators, length) for layer in layers
        )
        / 1e9,
        "masked_scores": masked_scores(layers),
        "saved_bytes": layer_sizes(graph, Recompute.NONE).all_saved_bytes,
    }


def _by_bytes(graph: ModelGraph, request: Request) -> dict[str, object]:
    """The operators that no formula describes, with their part of the time on the hardware of the
    request."""
    from GraphExtractor.graph import Recompute
    from phaze.settings.problem import hardware_of

    return {
        "priced_by_bytes": [
            asdict(each) for each in hardware_of(request).by_bytes(graph, Recompute.NONE)
        ]
    }


def _sequence_length(key: GraphKey) -> int | None:
    """None where samples are of one size, as images are."""
    from GraphExtractor.models.registry import find_model

    return key.sequence_length if find_model(key.model).has_sequence else None


def _alike(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """Degrees that all rows share, which a table need not show."""
    return [key for key in VARYING if len({row[key] for row in rows}) == 1]


def _degrees(key: GraphKey) -> dict[str, object]:
    """What the graphs of one model and size differ in."""
    return {"tp": key.tp, "cp": key.cp, "ep": key.ep, "sequence_parallel": key.sequence_parallel}


def _print_size(request: Request, command: Command) -> int:
    from phaze.report.tables.search_tables import space_table
    from phaze.settings.problem import space_size
    from phaze.studies.parts import parted_size

    size = space_size(request) if command.parts is None else parted_size(request, command.parts)
    print_answer(json.dumps(asdict(size), indent=2), lambda: [space_table(size)], command)
    return DONE
