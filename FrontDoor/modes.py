"""One function per execution mode: asks the rooms, prints the answer, returns the exit status."""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from FrontDoor.arguments import Command
from FrontDoor.calibrate import calibrate
from FrontDoor.evaluate import evaluate
from FrontDoor.exits import DONE, FAILED, NOTHING_FEASIBLE
from FrontDoor.explain import explain
from FrontDoor.models import models
from FrontDoor.plan_search import search_plans
from FrontDoor.printing import print_answer, print_rows
from FrontDoor.report import report
from FrontDoor.sweep import sweep
from FrontDoor.trace import trace
from FrontDoor.validate import validate

if TYPE_CHECKING:
    from Common.progress import Progress
    from GraphExtractor.graph import ModelGraph
    from Studies.study import Study

logger = logging.getLogger(__name__)

STDOUT = "-"


def run_solver(command: Command) -> int:
    """Search the study and print the best accelerator and plan; with a device only the plan."""
    from Solver.plan_search.settings import asks_for_device
    from Studies.study import read_config

    if asks_for_device({} if command.config is None else read_config(command.config), command.given):
        return search_plans(command)
    study = _study(command)
    if command.dry_run:
        return _print_size(study, command)
    from Reporter.tables import print_result
    from Solver.results import Status
    from Solver.search import run_solver as search
    from Studies.run_directory import best_json

    result = search(study, _progress(command))
    if command.output_format == "json":
        sys.stdout.write(best_json(result).decode() + "\n")
    else:
        print_result(result, sys.stdout)
    if result.best is not None:
        return DONE
    return NOTHING_FEASIBLE if result.status is Status.INFEASIBLE else FAILED


def extract_graph(command: Command) -> int:
    """Extract the graphs of the study, or find them on disk, and print what is in them."""
    study = _study(command)
    if command.dry_run:
        return _print_size(study, command)
    rows = [_described(graph) for graphs in _graphs(study, _progress(command)) for graph in graphs]
    print_rows("training graphs, per device", rows, command)
    logger.info("graphs are in %s", study.folders.graphs)
    return DONE


def prepopulate_estimates(command: Command) -> int:
    """Price the operators of the study's graphs on all core configurations and print how many there are."""
    study = _study(command)
    if command.dry_run:
        return _print_size(study, command)
    from Estimator.chips.latency_table import load_or_populate
    from Studies.hardware import load_hardware

    progress, hardware = _progress(command), load_hardware(study)
    accelerators = hardware.accelerators
    rows = []
    for graphs in _graphs(study, progress):
        key = graphs[0].key
        with progress.phase(f"operator latencies of {key.model}, micro-batch {key.micro_batch_size}", 1) as advance:
            load_or_populate(graphs, accelerators, hardware.platform, study.folders.estimates)
            advance(1)
        rows.append(
            {
                "model": key.label,
                "micro_batch_size": key.micro_batch_size,
                "sequence_length": key.sequence_length,
                "tensor_core_configurations": len(accelerators.tensor_cores),
                "vector_core_configurations": len(accelerators.vector_cores),
            }
        )
    print_rows("operator estimates", rows, command)
    logger.info("estimates are in %s", study.folders.estimates)
    return DONE


def accelerators(command: Command) -> int:
    """Write the accelerators of a design space in the original's cores.json format."""
    from Common.files import output_file
    from Estimator.chips.cores_file import write_cores_json
    from Estimator.chips.design_space import load_design_space
    from Studies.study import Study, design_space_from

    name = design_space_from(command.given)
    generated = load_design_space(name).generate()
    if command.output == STDOUT:
        with tempfile.TemporaryDirectory() as folder:
            write_cores_json(generated, Path(folder) / "cores.json")
            sys.stdout.write((Path(folder) / "cores.json").read_text(encoding="utf-8"))
        return DONE
    default = Study(models=()).folders.arch_configs / "cores.json"
    path = output_file(command.output or str(default), ", or - for standard output")
    write_cores_json(generated, path)
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
    from Common.files import user_path
    from FrontDoor.doctor import Verdict, examine
    from Studies.study import Study

    output = None if command.output is None else user_path(command.output)
    findings = examine(Study(models=(), name="study", output=output).folders)
    print_rows("doctor", [asdict(finding) for finding in findings], command)
    return FAILED if any(finding.verdict is Verdict.MISSING for finding in findings) else DONE


RUNNERS: dict[str, Callable[[Command], int]] = {
    "run_solver": run_solver,
    "extract_graph": extract_graph,
    "prepopulate_estimates": prepopulate_estimates,
    "evaluate": evaluate,
    "validate": validate,
    "calibrate": calibrate,
    "sweep": sweep,
    "report": report,
    "explain": explain,
    "trace": trace,
    "models": models,
    "accelerators": accelerators,
    "doctor": doctor,
}


def _study(command: Command) -> Study:
    from FrontDoor.compiled import find_place
    from Studies.study import REPOSITORY, read_config, study_from

    find_place(REPOSITORY / "Solver")
    config = {} if command.config is None else read_config(command.config)
    study = study_from(config, command.given, str(command.config))
    for note in study.notes:
        logger.info(note)
    return study


def _progress(command: Command) -> Progress:
    from Common.progress import progress_for

    return progress_for(sys.stderr, quiet=command.quiet)


def _graphs(study: Study, progress: Progress) -> Iterator[tuple[ModelGraph, ...]]:
    """Graphs of every model and micro-batch size, one per tensor parallel width."""
    from Estimator.chips.design_space import load_design_space
    from Estimator.coverage import check_functions
    from GraphExtractor import load_or_extract

    priced = load_design_space(study.design_space, study.technology).platform.vector_functions.cycles_per_element
    for model in study.models:
        for size in study.micro_batch_sizes:
            with progress.phase(f"training graphs of {model.name}, micro-batch {size}", len(study.tp_widths)) as advance:
                graphs = []
                for tp in study.tp_widths:
                    key = study.graph_key(model.name, size, tp)
                    graphs.append(load_or_extract(key, study.folders.graphs, force=study.force_reextract))
                    advance(1)
            if size == study.micro_batch_sizes[0]:  # others have the same operators
                check_functions(graphs, priced, strict=study.strict)
            yield tuple(graphs)


def _described(graph: ModelGraph) -> dict[str, object]:
    layers = [graph.layers[index] for index in graph.sequence]
    return {
        "model": graph.key.label,
        "micro_batch_size": graph.key.micro_batch_size,
        "sequence_length": graph.key.sequence_length,
        "tp": graph.key.tp,
        "layers": len(layers),
        "distinct_layers": len(graph.layers),
        "operators": sum(len(layer.forward.operators) + len(layer.backward.operators) for layer in layers),
        "parameters": sum(layer.parameter_count - layer.tied_count for layer in layers),
        "forward_gflops": round(sum(layer.forward.flops for layer in layers) / 1e9, 3),
        "backward_gflops": round(sum(layer.backward.flops for layer in layers) / 1e9, 3),
        "saved_bytes": sum(layer.saved.none for layer in layers),
    }


def _print_size(study: Study, command: Command) -> int:
    from Reporter.tables import space_table
    from Solver.search import space_size

    size = space_size(study)
    print_answer(json.dumps(asdict(size), indent=2), lambda: [space_table(size)], command)
    return DONE
