"""The command line in process, with the searches replaced: what is parsed, what is refused, how it
ends."""

import errno
import io
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import phaze
from Estimator.hardware_files import HARDWARE
from phaze.cli.arguments import parse
from phaze.cli.evaluate import Evaluate
from phaze.cli.mode import GROUPS
from phaze.cli.modes import DEFAULT_MODE, MODES
from phaze.cli.study import StudyCommand, request_of
from phaze.runs.plan_files import evaluate_request
from phaze.settings.request import setting_groups, settings_for
from phaze_common.errors import ArtefactError, InfeasibleError, PhazeError
from phaze_common.setting_fields import Mode


@dataclass
class Ran:
    """The commands that reached a mode, and what the mode then does."""

    commands: list[Any]
    raises: BaseException | None = None


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ran]:
    """Replace every mode by one that checks its study or plan and remembers the command."""
    record = Ran([])

    def instead(command: Any) -> int:
        if isinstance(command, StudyCommand):
            request_of(command)
        elif isinstance(command, Evaluate):
            evaluate_request(command.plan, command.settings)
        record.commands.append(command)
        if record.raises is not None:
            raise record.raises
        return 0

    for name, mode in MODES.items():
        monkeypatch.setitem(MODES, name, replace(mode, run=instead))
    yield record


def one_sentence(capsys: pytest.CaptureFixture[str]) -> str:
    """What was said on standard error: one line and no traceback; nothing on standard output."""
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    lines = captured.err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("phaze: ")
    return lines[0]


def test_original_flags_and_the_short_ones_are_the_same_command(ran: Ran) -> None:
    original = (
        "--phaze_model bertlarge --phaze_exec_type run_solver --phaze_micro_batch_size 1 2 4 "
        "--phaze_max_tmp_width 1 "
        "--phaze_sequence_length 512 --phaze_hbm_size 32 64 80 --force_reextract_model False"
    )
    short = (
        "run_solver --model bertlarge --micro-batch-size 1 2 4 --max-tp 1 --sequence-length 512 "
        "--hbm-size 32 64 80 --force-reextract false"
    )
    assert phaze.main(original.split()) == 0
    assert phaze.main(short.split()) == 0
    first, second = (request_of(command) for command in ran.commands)
    assert first == second
    assert not first.output.force_reextract_model
    assert {command.mode for command in ran.commands} == {"run_solver"}


@pytest.mark.parametrize("name", ["--phaze_model", "--phaze_model_names", "--model", "--models"])
def test_every_name_of_the_model_flag(ran: Ran, name: str) -> None:
    assert phaze.main([name, "bertlarge", "gpt2=2"]) == 0
    assert [model.name for model in request_of(ran.commands[0]).workload.models] == [
        "bertlarge",
        "gpt2",
    ]


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ([], True),
        (["True"], True),
        (["true"], True),
        (["False"], False),
        (["false"], False),
        (["0"], False),
        (["no"], False),
    ],
)
def test_force_reextract_model_false_is_false(ran: Ran, words: list[str], value: bool) -> None:
    assert phaze.main(["--model", "bertlarge", "--force_reextract_model", *words]) == 0
    assert request_of(ran.commands[0]).output.force_reextract_model is value


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_by_sub_command_and_by_the_original_flag(ran: Ran, mode: str) -> None:
    command = MODES[mode].command
    study = ["--model", "bertlarge"] if issubclass(command, StudyCommand | Evaluate) else []
    study += ["--device", "a100_80gb"] if mode == "evaluate" else []
    study += (
        ["some/where"]
        if mode in {"sweep", "report", "serve", "explain", "robust", "trace", "export", "compare"}
        else []
    )
    study += ["--to", "megatron_lm"] if mode == "export" else []
    assert phaze.main([mode, *study]) == phaze.main(["--phaze_exec_type", mode, *study]) == 0
    assert phaze.main([*study, f"--phaze_exec_type={mode}"]) == 0
    assert [command.mode for command in ran.commands] == [mode] * 3


def test_the_default_mode_searches(ran: Ran) -> None:
    assert phaze.main(["--model", "bertlarge"]) == 0
    assert ran.commands[0].mode == DEFAULT_MODE == "run_solver"


def test_flags_and_set_beat_the_config_file_and_the_later_one_wins(
    ran: Ran, tmp_path: Path
) -> None:
    config = tmp_path / "study.yaml"
    config.write_text(
        "phaze_model: bertlarge\nhbm_size: [32]\nzero_stage: 1\nphaze_max_tmp_width: 8\n"
    )
    words = [
        "--config",
        str(config),
        "--hbm-size",
        "64",
        "--set",
        "hbm_size=[80, 96]",
        "--set",
        "optimizer=sgd",
        "--tp",
        "2",
    ]
    assert phaze.main(words) == 0
    assert phaze.main([*words, "--hbm-size", "40"]) == 0
    studies = [request_of(command) for command in ran.commands]
    assert [study.hardware.hbm_size for study in studies] == [(80.0, 96.0), (40.0,)]
    assert {
        (study.plan.zero_stage, study.plan.optimizer.value, study.plan.tp) for study in studies
    } == {((1,), "sgd", (2,))}


def test_set_takes_lists_with_spaces_or_commas_too(ran: Ran) -> None:
    for value in ("32 64", "32,64", "[32, 64]"):
        assert phaze.main(["--model", "bertlarge", "--set", f"hbm-size={value}"]) == 0
    assert {request_of(command).hardware.hbm_size for command in ran.commands} == {(32.0, 64.0)}


BAD = {
    "no model": ("run_solver --quiet", "no model was given"),
    "two unlike wishes": (
        "--model bertlarge --quiet --verbose",
        "--verbose and --quiet contradict each other",
    ),
    "a width above its own maximum": (
        "--model bertlarge --tp 2 --max-tp 1",
        "command line: --max-tp and --tp exclude each",
    ),
    "the same in another order": (
        "--model bertlarge --phaze_max_tmp_width 1 --tp 2",
        "--max-tp and --tp exclude each other",
    ),
    "the same by --set": (
        "--model bertlarge --set max_tp=1 --tp 2",
        "--max-tp and --tp exclude each other; give one",
    ),
    "two ZeRO stages": (
        "evaluate --model gpt2 --device h100 --fsdp --zero-stage 1",
        "--fsdp and --zero-stage exclude each",
    ),
    "unknown mode": ("run_solvr --model bertlarge", "did you mean 'run_solver'"),
    "unknown mode in the original flag": (
        "--phaze_exec_type cook --model bertlarge",
        "the modes are run_solver",
    ),
    "two modes": ("run_solver --phaze_exec_type extract_graph --model bertlarge", "two modes"),
    "unknown flag": ("--model bertlarge --hbm_sze 32", "did you mean '--hbm-size'"),
    "abbreviated flag": ("--mod bertlarge", "unknown flag '--mod'"),
    "unknown model": ("--model bertlagre", "unknown model 'bertlagre'"),
    "argument without flag": ("run_solver bertlarge", "--model bertlarge"),
    "width that does not divide": ("--model bertlarge --max-tp 3", "1, 2, 4, 8"),
    "zero": ("--model bertlarge --phaze_micro_batch_size 0", "whole number"),
    "negative": ("--model bertlarge --phaze_micro_batch_size -1", "whole number"),
    "negative HBM": ("--model bertlarge --phaze_hbm_size -32", "number from"),
    "text for a number": ("--model bertlarge --phaze_sequence_length long", "whole number"),
    "flag without value": ("--model bertlarge --hbm-size", "expected at least one argument"),
    "a value that begins with a dash": (
        "--model bertlarge --links -1x5GB/s --quiet",
        "--links is followed by '-1x5GB/s', which begins with a dash and so is taken for a flag; "
        "if it is the value, write "
        "--links=-1x5GB/s; 'phaze run_solver --help' lists what is allowed",
    ),
    "the same with an equals sign": ("--model bertlarge --links=-1x5GB/s", "links is '-1x5GB/s'"),
    "model flag without value": ("--model", "expected at least one argument"),
    "unknown format": ("--model bertlarge --format xml", "table"),
    "missing config": ("--config nowhere.yaml", "cannot read nowhere.yaml"),
    "config that is a folder": ("--config .", "cannot read ."),
    "set without equals": ("--model bertlarge --set hbm_size", "no '='"),
    "set of an unknown key": ("--model bertlarge --set hbm=3", "unknown key 'hbm'"),
    "set of no YAML": ("--model bertlarge --set hbm_size=[3", "not valid YAML"),
    "flag of another mode": ("doctor --model bertlarge", "unknown flag '--model' of doctor"),
    "evaluation without a device": (
        "evaluate --model bertlarge",
        "no device was given; name one with --device: ",
    ),
    "evaluation without a model": ("evaluate --device a100_80gb", "no model was given"),
    "two values for one": (
        "evaluate --model bertlarge --device a100_80gb --tp 1 2",
        "unexpected argument '2'",
    ),
    "flag of the search": (
        "evaluate --objective throughput",
        "unknown flag '--objective' of evaluate",
    ),
    "missing plan": ("evaluate --plan nowhere.yaml", "cannot read nowhere.yaml"),
    "output that is a file": (f"--model bertlarge --output {__file__}", "is a file"),
    "output below a device": (
        "--model bertlarge --output /dev/null/x",
        "--output /dev/null/x cannot be a folder, since",
    ),
    "flag of the search that resembles another": (
        "evaluate --use-all-devices",
        "it is one of run_solver, ",
    ),
    "value that is not allowed": (
        "--hbm-size 0",
        "command line: --hbm-size is '0', but must be a number from",
    ),
    "unknown boolean": ("--model bertlarge --force_reextract_model maybe", "true or false"),
}


@pytest.mark.parametrize(("words", "said"), BAD.values(), ids=BAD)
def test_bad_input_ends_with_status_2_and_one_sentence(
    ran: Ran, capsys: pytest.CaptureFixture[str], words: str, said: str
) -> None:
    assert phaze.main(words.split()) == 2
    assert said in one_sentence(capsys)
    assert not ran.commands


def test_alone_it_shows_help_and_ends_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert phaze.main([]) == 0
    captured = capsys.readouterr()
    assert captured.err == "" and all(mode in captured.out for mode in MODES)


def problems(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What was said on standard error: a line, and below it one for each problem."""
    captured = capsys.readouterr()
    heading, *listed = captured.err.splitlines()
    assert captured.out == "" and heading == f"phaze: {len(listed)} problems:"
    assert all(line.startswith("  - ") for line in listed)
    return [line.removeprefix("  - ") for line in listed]


def test_everything_wrong_with_file_and_flags_is_said_at_once(
    ran: Ran, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text(
        "modle: bertlarge\nhbm_sze: 3\ntp: [1, x]\ndevice: h100\nhbm_size: 32\nobjective: "
        "throughput\nzero_stage: 7\n"
    )
    assert phaze.main(["--config", str(config), "--solver", "natve"]) == 2
    assert problems(capsys) == [
        f"{config}: unknown key 'modle'; did you mean 'model'?",
        f"{config}: unknown key 'hbm_sze'; did you mean 'hbm_size'?",
        f"{config}: tp is 'x', but must be a whole number from 1 to 4096",
        f"{config}: zero_stage is 7, but must be a whole number from 0 to 3",
        "command line: --solver is 'natve', but must be one of native, gurobi, highs",
        f"{config}: hbm_size 32 and objective throughput are about chips to design, but the device "
        "h100 is given; leave them or device out",
        "command line: --solver is about chips to design, but the device h100 is given; leave it "
        "or device out",
    ]
    assert not ran.commands


def test_what_is_known_is_listed_once_for_all_unknown_keys(
    ran: Ran, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "best.json"
    config.write_text(
        json.dumps(
            dict.fromkeys(("status", "optimal", *(f"strange{place}" for place in range(30))), 1)
        )
    )
    assert phaze.main(["--config", str(config)]) == 2
    sentence = one_sentence(capsys)
    assert sentence.startswith(f"phaze: {config}: unknown keys 'status', 'optimal', 'strange0',")
    assert (
        "'strange17' and 12 more; the keys are model, " in sentence
        and sentence.count("the keys are") == 1
    )


def test_unknown_models_and_hardware_are_named_together(
    ran: Ran, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--model bertlagre vit-large --cluster dgx_a10 --design-space phaze_icml25"
    assert phaze.main(words.split()) == 2
    first, second, third, fourth = problems(capsys)
    assert "unknown model 'bertlagre'; did you mean bertlarge?" in first
    assert "unknown model 'vit-large'; did you mean vit-l-16?" in second
    assert (
        third.startswith("no cluster named 'dgx_a10'; did you mean 'dgx_a100'? known: ")
        and "'phaze list clusters'" in third
    )
    assert fourth.startswith("no design space named 'phaze_icml25'; did you mean 'phaze_icml24'?")


def test_all_unknown_flags_are_named_together(ran: Ran, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        phaze.main(
            ["--model", "bertlarge", "--hbm-sze", "32", "--mcro-batch-size", "3", "--gpus", "4"]
        )
        == 2
    )
    first, second, third = problems(capsys)
    assert "did you mean '--hbm-size'?" in first and "did you mean '--micro-batch-size'?" in second
    assert (
        third
        == "unknown flag '--gpus' of run_solver; 'phaze run_solver --help' lists what is allowed"
    )


FILES = {
    "empty.yaml": b"",
    "braces.json": b"{}",
    "list.yaml": b"[1, 2]",
    "binary.yaml": b"\xff\xfe\x00",
    "moved.yaml": re.sub(
        rb"(?m)^cluster: .*", b"cluster: nowhere", (HARDWARE / "devices" / "h100.yaml").read_bytes()
    ),
}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "evaluate --plan braces.json",
            "braces.json names no model and no device; add what is lacking, or give --model and "
            "--d",
        ),
        ("evaluate --plan empty.yaml --model bertlarge", "empty.yaml is empty; give a plan"),
        (
            "evaluate --plan binary.yaml",
            "binary.yaml: it is not text in UTF-8; give the path of a YAML file",
        ),
        (
            "evaluate --model bertlarge --device binary.yaml",
            "binary.yaml: it is not text in UTF-8; give the path of a YAML file",
        ),
        (
            "evaluate --model bertlarge --device empty.yaml",
            "empty.yaml holds nothing, but must be a mapping of keys such as name",
        ),
        (
            "run_solver --model bertlarge --cluster list.yaml",
            "list.yaml holds a list, but must be a mapping of keys such as name, ",
        ),
        (
            "evaluate --model bertlarge --device moved.yaml",
            "moved.yaml: no cluster named 'nowhere'",
        ),
    ],
)
def test_files_that_hold_something_else_are_named(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    said: str,
) -> None:
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    assert phaze.main(words.split()) == 2
    assert said in one_sentence(capsys)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", ""], "--model is empty, but must be at least one name"),
        (
            ["--model", "bertlarge", "--tp", " "],
            "--tp is empty, but must be at least one whole number",
        ),
        (
            ["--model", "bertlarge", "--recompute", ""],
            "--recompute is empty, but must be one of none, selective, full",
        ),
        (
            ["--model", "bertlarge", "--set", "tp={range: 5}"],
            "--tp is {range: 5}, but must be a whole number from 1 to 4096",
        ),
        (
            ["--model", "bertlarge", "--set", "tp=[1, {to: [2]}]"],
            "--tp is {to: [2]}, but must be a whole number",
        ),
        (
            ["--model", "bertlarge", "--recompute", "all", "none"],
            "--recompute lists 'all' beside other values; give it alone",
        ),
        (
            ["--model", "bertlarge", "--hbm-size", "0"],
            "--hbm-size is '0', but must be a number from 0.0009765625 to 1048576",
        ),
        (
            ["evaluate", "--model", "", "--device", "h100"],
            "--model is empty, but must be a non-empty text",
        ),
        (
            ["--model", "bertlarge", "--hbm-size", "80 GHz"],
            "--hbm-size is '80 GHz'; it is a size: give GiB, or a number with B,",
        ),
        (
            ["--model", "bertlarge", "--set", "hbm_size=80 GHz"],
            "--hbm-size is '80 GHz'; it is a size: give GiB, or a number",
        ),
    ],
)
def test_what_is_empty_or_of_another_kind_is_echoed_as_it_was_typed(
    ran: Ran, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert phaze.main(words) == 2
    assert f"command line: {said}" in one_sentence(capsys)


def test_everything_wrong_with_named_models_is_said_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert phaze.main(["models", "gpt2", "nosuch", "", "vit-large"]) == 2
    assert [line.partition(";")[0] for line in problems(capsys)] == [
        f"unknown model {name!r}" for name in ("nosuch", "", "vit-large")
    ]


def test_a_folder_that_holds_a_model_is_not_taken_for_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert phaze.main(["run_solver", "--model", "mine"]) == 2
    assert (
        f"model 'mine' is a folder; did you mean {tmp_path / 'mine' / 'config.json'}?"
        in one_sentence(capsys)
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "evaluate --plan best.json --run-code nothing.py",
            "--run-code 'nothing.py' is no Python file; name a model.py",
        ),
        ("validate --plot folder", "is a folder or a device; give the file to write"),
    ],
)
def test_a_file_is_called_by_the_flag_that_names_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    said: str,
) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    assert phaze.main(words.split()) == 2
    sentence = one_sentence(capsys)
    assert said in sentence and words.split()[-2] in sentence


@pytest.mark.parametrize(
    "words",
    [
        "accelerators",
        "sweep study.yaml",
        "trace .",
        "report .",
        "calibrate --device h100 --table x",
    ],
)
def test_an_empty_output_is_not_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    (tmp_path / "study.yaml").write_text("model: gpt2")
    monkeypatch.chdir(tmp_path)
    assert phaze.main([*words.split(), "--output", ""]) == 2
    assert "empty" in one_sentence(capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["study.yaml"]


@pytest.mark.parametrize("mode", ["report", "explain", "trace"])
def test_an_empty_path_is_not_the_current_folder(
    capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    assert phaze.main([mode, ""]) == 2
    assert "a path is empty" in one_sentence(capsys)


def test_figures_below_a_file_are_refused_by_their_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert phaze.main(["report", ".", "--figures", f"{__file__}/figures"]) == 2
    assert (
        f"--figures {__file__}/figures cannot be a folder, since {__file__} is a file"
        in one_sentence(capsys)
    )


@pytest.mark.parametrize("kind", ["design_space", "cluster"])
def test_unknown_hardware_names_are_refused_before_anything_runs(
    ran: Ran, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    assert phaze.main(["--model", "bertlarge", "--set", f"{kind}=imaginary"]) == 2
    assert "imaginary" in one_sentence(capsys)
    assert not ran.commands


@pytest.mark.parametrize(
    "text",
    [
        "model: [bertlarge",
        "- bertlarge",
        "model: bertlarge\nhbm_size: -3",
        "model: bertlarge\nmodel: gpt2",
    ],
)
def test_bad_config_files_are_named(
    ran: Ran, capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str
) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text(text)
    assert phaze.main(["--config", str(config)]) == 2
    assert "mine.yaml" in one_sentence(capsys)


@pytest.mark.parametrize(
    ("raised", "status", "said"),
    [
        (InfeasibleError("nothing fits"), 3, "nothing fits"),
        (ArtefactError("broken file"), 1, "broken file"),
        (PhazeError("two\nlines"), 1, "two lines"),
        (OSError(errno.ENOSPC, "No space left on device", "/x/y"), 1, "the disk is full at /x/y"),
        (
            OSError(errno.ENAMETOOLONG, "File name too long", "/x/y"),
            2,
            "file name too long at /x/y; give another path",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied", "/x/y"),
            1,
            "permission denied at /x/y",
        ),
        (MemoryError(), 1, "out of memory"),
        (
            ModuleNotFoundError("No module named 'numpy'"),
            1,
            "No module named 'numpy'); run ./setup.sh",
        ),
        (KeyboardInterrupt(), 130, "interrupted"),
        (
            RuntimeError("surprise"),
            1,
            "unexpected RuntimeError: surprise; run again with --verbose",
        ),
    ],
)
def test_every_end_has_its_status_and_sentence(
    ran: Ran, capsys: pytest.CaptureFixture[str], raised: BaseException, status: int, said: str
) -> None:
    ran.raises = raised
    assert phaze.main(["--model", "bertlarge"]) == status
    assert said in one_sentence(capsys)


def test_what_a_terminal_cannot_show_is_escaped(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(shown, encoding="ascii"))
    doctor = replace(
        MODES["doctor"],
        run=lambda command: sys.stdout.write("folder \u00e9\u2500\udcff\n") and 0,
    )
    monkeypatch.setitem(MODES, "doctor", doctor)
    assert phaze.main(["doctor"]) == 0
    assert shown.getvalue() == b"folder \\xe9\\u2500\\udcff\n"


def test_verbose_shows_where_an_unexpected_error_came_from(
    ran: Ran, capsys: pytest.CaptureFixture[str]
) -> None:
    ran.raises = RuntimeError("surprise")
    assert phaze.main(["--model", "bertlarge", "--verbose"]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["--help"], *([mode, "--help"] for mode in MODES), ["--version"]]
)
def test_help_and_version_end_well(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert phaze.main(words) == 0
    assert "phaze" in capsys.readouterr().out


def test_help_of_the_search_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    phaze.main(["run_solver", "--help"])
    shown = capsys.readouterr().out
    for setting in settings_for(Mode.SEARCH).settings:
        assert all(flag in shown for flag in setting.flags)


FLAGS = [
    *(flag for mode in Mode for setting in settings_for(mode).settings for flag in setting.flags),
    "--plan",
    "--table",
    "--plot",
    "--force",
    "--config",
    "--set",
    "--format",
    "--dry-run",
    "--phaze_exec_type",
]
VALUES = [
    "bertlarge",
    "gpt2=2",
    "1",
    "-1",
    "0",
    "32",
    "true",
    "flash",
    "full",
    "a100_80gb",
    "interleaved",
    "x=1",
    "hbm_size=3",
    "=",
    "--",
    "-",
    "~/x.yaml",
    "a/b",
]
WORDS = st.sampled_from([*MODES, *FLAGS, *VALUES]) | st.text(max_size=8)


@given(st.lists(WORDS, max_size=7))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_command_line_ends_without_a_traceback(
    ran: Ran, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    status = phaze.main(words)
    captured = capsys.readouterr()
    assert status in {0, 2}
    assert "unexpected" not in captured.err or "unexpected argument" in captured.err
    assert "Traceback" not in captured.err


def test_accelerators_writes_the_design_space_in_the_original_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "cores.json"
    assert phaze.main(["accelerators", "--output", str(written), "--format", "json"]) == 0
    (summary,) = json.loads(capsys.readouterr().out)
    entries = json.loads(written.read_text())
    assert len(entries) == summary["accelerators"] == 29360
    assert set(entries[0]) == {
        "num_tc",
        "num_vc",
        "width",
        "depth",
        "width_vc",
        "GLB_Buffer",
        "area",
    }
    assert phaze.main(["accelerators", "--output", "-"]) == 0
    assert capsys.readouterr().out == written.read_text()


def test_accelerators_refuses_a_folder_and_an_unknown_space(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert phaze.main(["accelerators", "--output", str(tmp_path)]) == 2
    assert "is a folder or a device" in one_sentence(capsys)
    assert phaze.main(["accelerators", "--design-space", "imaginary"]) == 2
    assert "imaginary" in one_sentence(capsys)


def test_a_file_of_another_kind_is_not_replaced(tmp_path, capsys):
    kept = {"mine.py": "import torch", "mine.json": '{"optimal": 1}'}
    for name, content in kept.items():
        (tmp_path / name).write_text(content)
        for words in (["accelerators"], ["trace", str(tmp_path)]):
            assert phaze.main([*words, "--output", str(tmp_path / name)]) == 2
        assert (tmp_path / name).read_text() == content
    own = tmp_path / "cores.json"
    for _ in range(2):  # its own, it does
        assert phaze.main(["accelerators", "--output", str(own), "--quiet"]) == 0
    capsys.readouterr()


def test_a_full_disk_ends_with_one_sentence_and_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert phaze.main(["accelerators", "--output", str(tmp_path / "cores.json")]) == 1
    assert "No space left on device; make room or choose another place" in one_sentence(capsys)
    assert list(tmp_path.iterdir()) == []


def test_parsing_does_not_depend_on_where_the_mode_stands() -> None:
    assert parse(["--csv", "--phaze_exec_type", "extract_graph", "--tp", "2"]) == parse(
        ["extract_graph", "--csv", "--tp", "2"]
    )


def test_every_mode_and_every_setting_has_its_place_in_help() -> None:
    assert {mode.group for mode in MODES.values()} == {*GROUPS}
    placed = [key for keys in setting_groups().values() for key in keys]
    assert sorted(placed) == sorted({key for mode in Mode for key in settings_for(mode).keys})


@pytest.mark.parametrize("words", [[], ["--help"], *([mode, "--help"] for mode in MODES)])
def test_help_fits_a_terminal_of_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert phaze.main(words) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert f"usage: phaze {words[0] if words and words[0] in MODES else ''}" in shown
