"""Every door of the house has its guard: whatever reads, writes, names or asks goes through the one
place that checks it.

Newer code is read for calls that would pass a guard by. What may is listed here with its reason; a
line that is not needed any more fails, too.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

import phaze
from phaze.cli.arguments import mode_parsers
from phaze.settings.plan_table import COLUMNS
from phaze.settings.request import settings_for
from phaze_common.setting_fields import Mode

REPOSITORY = Path(phaze.__file__).resolve().parents[1]
ROOMS = ("phaze", "phaze_common", "GraphExtractor", "Estimator", "Solver", "third_party")

READERS = {  # what reads without bounds, or takes what is no number and the last of two equal keys
    *(
        "read_text",
        "read_bytes",
        "open",
        "json.load",
        "json.loads",
        "yaml.load",
        "yaml.safe_load",
        "yaml.full_load",
        "tomllib.load",
    ),
    *(
        "tomllib.loads",
        "gzip.open",
        "gzip.decompress",
        "zlib.decompress",
        "np.load",
        "np.loadtxt",
        "np.genfromtxt",
        "pickle.load",
    ),
    *(
        "pickle.load",
        "pickle.loads",
        "pd.read_csv",
        "pd.read_parquet",
        "pd.read_json",
        "pq.read_table",
        "pq.ParquetFile",
    ),
    *("zipfile.ZipFile", "torch.load", "lzma.open", "bz2.open"),
}
MAY_READ = {
    "phaze_common/files.py read_bytes open": "the bounded reader of what people name",
    "phaze_common/files.py read_packed gzip.open": "the bounded reader of what people name, unpacked "
    "within its bound",
    "phaze_common/files.py artefact_bytes open": "the bounded reader of what phaze keeps",
    "phaze_common/files.py unpack gzip.open": "the bounded reader of packed artefacts",
    "phaze_common/files.py package_version read_bytes": "sources of phaze",
    "phaze_common/files.py append_line open": "a table of phaze's own, whose last line is looked at",
    "phaze_common/files.py write_atomically open": "the atomic writer, which makes a new file",
    "phaze_common/written_files.py _begins open": "no more than the head of a file",
    "phaze_common/json_text.py parse_json json.loads": "the reader of JSON",
    "phaze_common/arrays.py read_arrays np.load": "of bytes read within bounds, without pickle, "
    "unpacked within them",
    "phaze_common/parquet.py read_parquet pq.ParquetFile": "the reader of parquet, of bytes read within "
    "bounds",
    "phaze_common/requirements.py _lines read_text": "pyproject.toml of phaze",
    "phaze_common/requirements.py _lines tomllib.loads": "pyproject.toml of phaze",
    "phaze_common/kept_files.py _read read_bytes": "compiled code in a folder that only its owner can "
    "write",
    "phaze_common/kept_files.py _load_index pickle.loads": "as numba keeps it, after its digest and in "
    "its owner's folder",
    "phaze_common/kept_files.py _load_data pickle.loads": "as numba keeps it, after its digest and in "
    "its owner's folder",
    "phaze_common/file_formats.py stamped_json json.loads": "what phaze has just written",
    "phaze/runtime/training/launch.py _watched pickle.loads": "what its own process wrote into a pipe",
    "phaze/studies/robust/sampled_space.py": "designs that are open, no files",
    "phaze/cli/exit_status.py _prepare_streams open": "the device that takes everything",
    "phaze/cli/listing.py _comment read_text": "hardware that ships",
    "GraphExtractor/sources/hf_files.py": "sources of the installed transformers",
    "phaze/report/pages/page.py _template read_text": "templates of phaze",
    "phaze/runtime/profiling/this_machine.py": "what the system says of itself",
    "phaze/runtime/profiling/run.py _locked open": "a lock",
    "third_party/amped/command_line.py _is_own open": "no more than the first line",
    "phaze_common/toml_text.py parse_toml tomllib.loads": "the reader of TOML",
}

WRITERS = {  # what replaces a file without asking whose it is
    *(
        "write_text",
        "write_bytes",
        "write_atomically",
        "append_line",
        "to_csv",
        "to_parquet",
        "to_json",
        "savefig",
        "dump",
        "savez",
    ),
    *(
        "copy",
        "copy2",
        "copyfile",
        "copytree",
        "move",
        "rename",
        "symlink_to",
        "hardlink_to",
        "np.save",
        "np.savez",
        "torch.save",
    ),
}
MAY_WRITE = {
    "phaze_common/written_files.py write_outputs write_atomically": "the guarded writer",
    "GraphExtractor/storage.py": "graphs by their content",
    "Solver/designs/shared_incumbent.py": "what parts of a search tell each other",
    "phaze_common/user_cache.py": "files by their content",
    "phaze/runs/kept_answers.py": "answers by their content",
    "phaze/report/pages/page.py _bundle write_atomically": "a script of its version in the user's cache",
    "phaze/runs/robustness.py": "robust.json of a run; what is no answer is set aside before",
    "phaze/runs/run_directory.py": "files of a run, after check_replaceable",
    "phaze/studies/training_time/run.py": "files of a training time, after check_replaceable",
    "phaze/studies/sweep/": "tables and points of a sweep, after refuse_replacing",
    "Estimator/profiled/": "a database that profile made, after _check_machine; tables are made "
    "in memory",
    "phaze/runtime/training/checkpoints.py": "checkpoints in a folder of their own",
    "phaze/cli/calibrate.py": "refuses every file that is there, unless --force",
    "third_party/amped/command_line.py": "after refuse_replacing",
    "third_party/aceso/comparison.py": "answers that are kept, a line each",
}

OF_OTHERS = ("launch.plan.model", "launch.device", "launch.cluster", "tier.name", "plan.model")
WRITER_OF_WORDS = {
    "commented",
    "in_markdown",
    "in_code_of_markdown",
    "repr",
    "dumps",
    "unsupported",
    "InputError",
    "PhazeError",
}

GUARDS_OF_PATHS = {  # flags that name a place, by mode, and what keeps what is there
    "check_replaceable of runs": {
        *(
            "extract_graph output",
            "prepopulate_estimates output",
            "run_solver output",
            "evaluate output",
            "explain output",
            "training-time output",
        ),
        "compare output",
    },
    "refuse_replacing": {"sweep output"},
    "phaze_common.written_files": {
        *(
            "export output",
            "report output",
            "report figures",
            "trace output",
            "accelerators output",
            "train output",
        ),
        *("validate plot", "validate typed"),
    },
    "graphs by their content": {"validate output"},
    "refuses whatever is there": {"calibrate output", "profile output"},
    "writes nothing": {"doctor output"},
}


@cache
def sources() -> tuple[tuple[str, ast.Module], ...]:
    found = sorted(
        path
        for room in ROOMS
        for path in (REPOSITORY / room).rglob("*.py")
        if "__pycache__" not in path.parts
    )
    return tuple(
        (path.relative_to(REPOSITORY).as_posix(), ast.parse(path.read_text())) for path in found
    )


def calls(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """Every call with the function that it stands in."""

    def within(node: ast.AST, function: str) -> Iterator[tuple[str, ast.Call]]:
        for child in ast.iter_child_nodes(node):
            inner = (
                child.name
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
                else function
            )
            if isinstance(child, ast.Call):
                yield function, child
            yield from within(child, inner)

    return within(tree, "")


def named(call: ast.Call) -> set[str]:
    """What is called: the name, and with what stands before it."""
    text = ast.unparse(call.func)
    return (
        {text, text.rpartition(".")[2]}
        if isinstance(call.func, ast.Name | ast.Attribute)
        else set()
    )


def passing(wanted: set[str], allowed: Callable[[ast.Call], bool]) -> list[str]:
    return [
        f"{path} {function} {name}"
        for path, tree in sources()
        for function, call in calls(tree)
        for name in sorted(named(call) & wanted)[:1]
        if not allowed(call)
    ]


def is_our_own(call: ast.Call) -> bool:
    """JSON that was made in the same expression; a method of the house that has such a name; what
    is opened for nobody else."""
    text = ast.unparse(call)
    return "loads(to_json(" in text or text.startswith(
        (
            "Path(os.devnull)",
            "self.open",
            "best.open",
            "point.open",
            "whole.open",
            "bounded.open",
            "os.open",
        )
    )


def check(found: list[str], listed: dict[str, str]) -> None:
    unlisted = [each for each in found if not any(each.startswith(start) for start in listed)]
    assert not unlisted, f"these pass the guard by: {unlisted}"
    unused = [start for start in listed if not any(each.startswith(start) for each in found)]
    assert not unused, f"these are listed for nothing: {unused}"


def test_every_reader_is_bounded() -> None:
    found = [
        each
        for each in passing(READERS, is_our_own)
        if not each.endswith((".open rows", "_screen.py open"))
    ]
    house = {"read_text", "read_bytes"}  # of phaze_common.files by name: calls without an object
    bare = {
        f"{path} {function} {call.func.id}"
        for path, tree in sources()
        for function, call in calls(tree)
        if isinstance(call.func, ast.Name) and call.func.id in house
    }
    check([each for each in found if each not in bare], MAY_READ)


def test_every_writer_asks_whose_file_it_replaces() -> None:
    def in_memory(call: ast.Call) -> bool:
        text = ast.unparse(call)
        bare = isinstance(call.func, ast.Name) and call.func.id in {"to_json", "copy"}
        return (
            bare
            or "yaml.dump(" in text
            or text.endswith((".copy()", "rename(columns=...)"))
            or "buffer" in text
            or "to_csv(index=False)" in text
        )

    check(passing(WRITERS, in_memory), MAY_WRITE)


def test_words_of_others_pass_their_writer_in_every_template() -> None:
    def unguarded(node: ast.AST, *, guarded: bool) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            inside = guarded or (
                isinstance(child, ast.Call) and bool(named(child) & WRITER_OF_WORDS)
            )
            if (
                isinstance(child, ast.FormattedValue)
                and child.conversion != ord("r")
                and not inside
            ):
                text = ast.unparse(child.value)
                if text.endswith(OF_OTHERS):
                    yield text
            yield from unguarded(child, guarded=inside)

    templates = [(path, tree) for path, tree in sources() if path.startswith("phaze/exports/")]
    assert len(templates) > 20
    found = {path: list(unguarded(tree, guarded=False)) for path, tree in templates}
    assert not {path: each for path, each in found.items() if each}


def test_every_flag_that_names_a_place_has_its_guard() -> None:
    places = {"output", "figures", "plot", "typed"}
    flags = {
        mode: {name.lstrip("-") for words in parser.flag_words() for name in words.names}
        for mode, parser in mode_parsers().items()
    }
    found = {f"{mode} {flag}" for mode, names in flags.items() for flag in names & places}
    listed = {each for group in GUARDS_OF_PATHS.values() for each in group}
    assert found == listed, "flags that name a place, and the guards that are known of such flags"
    forced = {each.partition(" ")[0] for each in GUARDS_OF_PATHS["phaze_common.written_files"]}
    assert {mode for mode, names in flags.items() if "force" in names} == forced | {"calibrate"}


@pytest.mark.parametrize("column", COLUMNS)
def test_every_column_of_a_table_is_a_setting_of_the_command_line(column: str) -> None:
    assert column in settings_for(Mode.EVALUATE).keys
