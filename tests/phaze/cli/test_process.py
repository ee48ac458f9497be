"""The command as a process: what it imports, closed pipes, interrupts; set-up and model scripts."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from phaze.cli.arguments import parse
from phaze.settings.resolve import resolve
from tests.builders.processes import started

REPOSITORY = Path(__file__).resolve().parents[3]
MODEL_SCRIPTS = [
    "bert.sh",
    "gpt2.sh",
    "gpt3.sh",
    "llama2.sh",
    "megatronbert.sh",
    "megatrongpt2.sh",
    "opt.sh",
]
SHELL = [
    REPOSITORY / "setup.sh",
    REPOSITORY / ".ci" / "run",
    *(REPOSITORY / "scripts").glob("*.sh"),
]


def run(
    *words: str | Path, folder: Path = REPOSITORY, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--help",
        "run_solver --help",
        "evaluate --help",
        "--version",
        "--model bertlarge --no-such-flag",
    ],
)
def test_nothing_heavy_is_imported_to_help_or_refuse(words: str) -> None:
    code = (
        "import sys, phaze; phaze.main(sys.argv[1:]); "
        "heavy = 'torch transformers numpy pandas scipy numba gurobipy networkx pydantic rich'; "
        "print([name for name in heavy.split() if name in sys.modules])"
    )
    assert run(sys.executable, "-c", code, *words.split()).stdout.splitlines()[-1] == "[]"


LIGHT_REFUSALS = """
run_solver --model nosuch
run_solver --model bertlarge --hbm-size -1
run_solver --model gpt2 --tp 2
run_solver --model gpt2 --tp 2 --max-tp 1
run_solver --model gpt2 --device h100 --hbm-size 32
run_solver --config FOLDER/wrong.yaml
run_solver --config FOLDER/broken.yaml
extract_graph --model FOLDER/config.json
extract_graph --model FOLDER/swin.json --sequence-length 5
extract_graph --model FOLDER/half.py
evaluate --model gpt2 --device nosuch
evaluate --model gpt2 --device h100 --pp 1000
evaluate --plan FOLDER/wrong.yaml
sweep FOLDER/wrong.yaml
explain FOLDER
trace FOLDER/nowhere
report FOLDER/nowhere
validate FOLDER/nowhere.csv
models nosuch
accelerators --design-space nosuch
"""


@pytest.mark.thorough
def test_what_is_refused_without_building_a_model_imports_no_torch(tmp_path: Path) -> None:
    contents = {
        "wrong.yaml": "modle: gpt2",
        "broken.yaml": "model: [gpt2",
        "config.json": '{"model_type": "nosuch"}',
        "swin.json": '{"model_type": "swin", "architectures": ["SwinForImageClassification"]}',
        "half.py": "def build(): pass",
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
    commands = [
        line.replace("FOLDER", str(tmp_path)).split() for line in LIGHT_REFUSALS.split("\n") if line
    ]
    code = (
        f"import sys, phaze; print([phaze.main(words) for words in {commands!r}]); "
        "print([name for name in ('torch', 'transformers') if name in sys.modules])"
    )
    done = run(sys.executable, "-c", code)
    assert done.stdout.splitlines() == [str([2] * len(commands)), "[]"]


def test_the_script_runs_from_any_folder(tmp_path: Path) -> None:
    done = run(
        sys.executable,
        REPOSITORY / "phaze.py",
        "--model",
        "bertlarge",
        "--hbm-size",
        "-1",
        folder=tmp_path,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("phaze: command line: --hbm-size is '-1'")


def test_a_reader_that_closes_the_pipe_is_no_error() -> None:
    done = run(
        "bash",
        "-c",
        f"set -o pipefail; '{sys.executable}' phaze.py accelerators --output - | head -n 1",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[\n", "")


def test_closed_streams_are_no_error() -> None:
    done = run(
        "bash",
        "-c",
        f"'{sys.executable}' phaze.py run_solver --model bertlarge --dry-run >&- 2>&- <&-",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.some(1)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("words", ["doctor", "models", "run_solver --model bertlarge --dry-run"])
def test_output_to_a_full_disk_fails_with_one_sentence(words: str) -> None:
    done = run("bash", "-c", f"'{sys.executable}' phaze.py {words} >/dev/full")
    assert done.returncode == 1
    said = (
        "standard output cannot be written, since its disk is full; make room, then run the "
        "same command again"
    )
    assert done.stderr == f"phaze: {said}\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_log_on_a_full_disk_does_not_end_the_run() -> None:
    log = (
        "import logging; from phaze_common.logs import configure_logs as c; c(); "
        "logging.getLogger('Solver').warning('x'); print('on')"
    )
    done = run("bash", "-c", f"'{sys.executable}' -c \"{log}\" 2>/dev/full")
    assert (done.returncode, done.stdout) == (0, "on\n")


@pytest.mark.kill
@pytest.mark.parametrize(
    ("sent", "status", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_an_interrupt_ends_with_one_line_and_its_status(
    sent: signal.Signals, status: int, word: str
) -> None:
    wait = "lambda command: (print('up', flush=True), time.sleep(60))"
    code = "import phaze, time; from dataclasses import replace"
    code += "; from phaze.cli.modes import MODES"
    code += f"; MODES['doctor'] = replace(MODES['doctor'], run={wait})"
    words = [sys.executable, "-c", f"{code}; raise SystemExit(phaze.main(['doctor']))"]
    with started(words, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        child.send_signal(sent)
        _, said = child.communicate(timeout=30)
    assert child.returncode == status
    assert (
        said
        == f"phaze: {word}; everything finished so far is kept, and the same command goes on from "
        "there\n"
    )


@pytest.mark.parametrize("script", SHELL, ids=lambda path: path.name)
def test_shell_scripts_parse_and_stop_at_the_first_error(script: Path) -> None:
    assert run("bash", "-n", script).returncode == 0
    sourced = script.name == "common.sh" or 'common.sh"' in script.read_text()
    assert sourced or "set -euo pipefail" in script.read_text()
    assert os.access(script, os.X_OK) == (script.name != "common.sh")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the scripts with a set-up that does nothing and a Python that prints the arguments
    it gets."""
    copy = tmp_path / "a checkout"
    shutil.copytree(REPOSITORY / "scripts", copy / "scripts")
    (copy / ".venv" / "bin").mkdir(parents=True)
    for name, line in {
        "setup.sh": "exit 0",
        ".venv/bin/python": 'shift; printf "<%s>" "$@"; echo',
    }.items():
        (copy / name).write_text(f"#!/usr/bin/env bash\n{line}\n")
        (copy / name).chmod(0o755)
    return copy


@pytest.mark.parametrize("script", MODEL_SCRIPTS)
def test_model_scripts_search_their_model_from_any_folder(
    checkout: Path, tmp_path: Path, script: str
) -> None:
    default = run(checkout / "scripts" / script, folder=tmp_path)
    chosen = run(checkout / "scripts" / script, "1 2", "--hbm-size", "40", folder=tmp_path)
    assert default.returncode == chosen.returncode == 0
    assert len(default.stdout.splitlines()) == (3 if script == "megatrongpt2.sh" else 1)
    for line in default.stdout.splitlines():
        assert re.match(
            r"<run_solver><--model><[a-z0-9-]+><--sequence-length><\d+>.*<--micro-batch-size><1[ "
            r"0-9]*><--hbm-size><32><64><80>$",
            line,
        )
    for line in chosen.stdout.splitlines():
        assert line.endswith("<--micro-batch-size><1 2><--hbm-size><32><64><80><--hbm-size><40>")


WIDTHS = [
    "--tp 2",
    "--tp=2",
    "--max-tp 2",
    "--phaze_max_tmp_width 2",
    "--set tp=2",
    "--set=max_tp=2",
    "--quiet --set max-tp=2",
]


@pytest.mark.parametrize("typed", [*WIDTHS, "--device a100_80gb", "--set device=a100_80gb --tp 2"])
@pytest.mark.parametrize("script", ["bert.sh", "gpt3.sh", "megatrongpt2.sh"])
def test_flags_given_to_a_model_script_win_over_its_own(
    checkout: Path, script: str, typed: str
) -> None:
    done = run(checkout / "scripts" / script, "1", *typed.split())
    assert done.returncode == 0
    for words in (
        re.findall("<([^>]*)>", line) for line in done.stdout.splitlines() if "xl" not in line
    ):  # of 25 heads
        request = resolve({}, parse(words).settings)
        assert "device" in typed or max(request.plan.tp) == 2
        assert request.on_devices == ("device" in typed)
        assert request.plan.micro_batch_size == (1,)


def test_a_flag_may_stand_where_the_sizes_are_left_out(checkout: Path) -> None:
    assert run(checkout / "scripts" / "bert.sh", "--dry-run").stdout.endswith(
        "<1 2 4 8><--hbm-size><32><64><80><--dry-run>\n"
    )


def test_a_script_runs_through_a_link(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(checkout / "scripts" / "bert.sh")
    assert "<bertlarge>" in run(tmp_path / "link", folder=tmp_path).stdout


def test_model_scripts_pass_the_exit_status_on(checkout: Path) -> None:
    (checkout / ".venv" / "bin" / "python").write_text("#!/usr/bin/env bash\nexit 3\n")
    assert run(checkout / "scripts" / "bert.sh").returncode == 3


def test_the_loop_profiles_searches_and_trains_the_same_model(
    checkout: Path, tmp_path: Path
) -> None:
    script = checkout / "scripts" / "profile_search_train.sh"
    folder = str(tmp_path / "here")
    done = run(
        script,
        "gpt2",
        "2",
        "--micro-batch-size",
        "1 2",
        "--steps",
        "5",
        "--output",
        folder,
        folder=tmp_path,
    )
    assert done.returncode == 0
    profile, search, train = (re.findall("<([^>]*)>", line) for line in done.stdout.splitlines())
    assert [profile[0], search[0], train[0]] == ["profile", "run_solver", "train"]
    of_model = [
        "--model",
        "gpt2",
        "--sequence-length",
        "64",
        "--tp",
        "1",
        "--micro-batch-size",
        "1",
        "2",
    ]
    assert profile[1 : 1 + len(of_model)] == search[1 : 1 + len(of_model)] == of_model
    assert profile[-1] == search[search.index("--device") + 1] == f"{folder}/profile"
    assert search[search.index("--output") + 1] == f"{folder}/run"
    assert train[1:] == [
        "--plan",
        f"{folder}/run/best.json",
        "--processes",
        "2",
        "--steps",
        "5",
        "--check",
    ]
    assert "--sequence-length" not in run(script, "resnet-50", folder=tmp_path).stdout
    for words in (["gpt2", "0"], ["gpt2", "two"], ["--wrong", "1"], ["gpt2", "2", "--steps"]):
        refused = run(script, *words, folder=tmp_path)
        assert refused.returncode == 2 and refused.stderr and not refused.stdout


# of the system that set-up and the fake Python use
TOOLS = ["bash", "env", "dirname", "readlink", "cksum", "cat", "flock", "mktemp", "rm", "mkdir"]
TOOLS += ["cp", "grep", "sed", "head"]


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A copy of the set-up whose Python makes environments in which pip only records what it is
    asked; from the index comes a uv that records too."""
    copy = tmp_path / "bare"
    copy.mkdir()
    for name in ("setup.sh", "pyproject.toml", "constraints.txt"):
        shutil.copy(REPOSITORY / name, copy / name)
    (tmp_path / "uv").write_text(
        "#!/usr/bin/env bash\n"
        f'echo "uv $@" >>"{tmp_path}/calls"\n'
        f'[[ ! -e "{tmp_path}/no-network" && ! -e "{tmp_path}/no-uv-install" ]] || exit 1\n'
        f'[[ $* != *--torch-backend* || -e "{tmp_path}/torch-index" ]]\n'
    )
    fake = tmp_path / "python"
    fake.write_text(
        "#!/usr/bin/env bash\n"
        'if [[ $1 == -c ]]; then echo "fake 3.11"; exit 0; fi\n'
        f'if [[ $* == *"config list" ]]; then cat "{tmp_path}/pip-settings" 2>/dev/null; exit 0; fi\n'
        f'echo "$@" >>"{tmp_path}/calls"\n'
        f'if [[ $2 == pip && -e "{tmp_path}/no-network" && $3 == install ]]; then exit 1; fi\n'
        f'if [[ $2 == run_solver && -e "{tmp_path}/interrupted" ]]; then exit 130; fi\n'
        'if [[ $2 == venv ]]; then mkdir -p "${@: -1}/bin"; cp "$0" "${@: -1}/bin/python"; fi\n'
        f'if [[ $* == *" uv" ]]; then [[ ! -e "{tmp_path}/no-uv" ]] || exit 1;'
        f' cp "{tmp_path}/uv" "${{0%/*}}/uv"; fi\n'
    )
    for each in (fake, tmp_path / "uv"):
        each.chmod(0o755)
    return copy


def calls(bare: Path) -> list[str]:
    """What the fake Python was asked since the last time."""
    record = bare.parent / "calls"
    lines = record.read_text().splitlines() if record.exists() else []
    record.write_text("")
    return lines


def set_up(bare: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """As on a machine without uv of its own."""
    tools = bare.parent / "tools"
    if not tools.exists():
        tools.mkdir()
        for tool in TOOLS:
            if found := shutil.which(tool):
                (tools / tool).symlink_to(found)
    given = {"PATH": str(tools), "PHAZE_PYTHON": str(bare.parent / "python"), **environment}
    return run(bare / "setup.sh", *words, **given)


def test_a_set_up_that_is_interrupted_in_its_trial_ends_and_is_done_again(bare: Path) -> None:
    mark = bare.parent / "interrupted"
    mark.touch()
    done = set_up(bare)
    assert done.returncode == 130 and "done" not in done.stderr
    mark.unlink()
    calls(bare)
    assert set_up(bare).returncode == 0
    assert any("run_solver" in each for each in calls(bare))


def test_set_up_installs_once_and_again_only_when_something_changed(bare: Path) -> None:
    assert set_up(bare).returncode == 0
    made = calls(bare)
    wanted = f"--constraint {bare}/constraints.txt --editable {bare}[report,runtime]"
    assert made[0].startswith("-m venv --clear")
    assert re.match(r"-m pip install .* uv$", made[1])
    assert re.match(r"uv pip install .*--dry-run .*--torch-backend cpu torch==[\d.]+$", made[2])
    assert made[3].startswith("uv pip install") and made[3].endswith(wanted)
    assert "--torch-backend" not in made[3]  # its index was not there
    bytecode, trial = sorted(made[4:])  # at once
    assert bytecode.startswith("-m compileall")
    assert trial.startswith(f"{bare}/phaze.py run_solver")
    assert len(made) == 6
    assert set_up(bare).returncode == 0
    assert calls(bare) == []
    assert set_up(bare, "--dev").returncode == 0
    made = calls(bare)
    assert f"--editable {bare}[dev]" in " ".join(made)
    assert "compileall" not in " ".join(made)
    assert set_up(bare).returncode == 0
    assert calls(bare) == []
    for name in ("pyproject.toml", "constraints.txt"):
        with (bare / name).open("a") as wanted_file:
            wanted_file.write("# changed\n")
        assert set_up(bare).returncode == 0
        assert any("install" in call for call in calls(bare))


def test_set_up_takes_a_cpu_build_where_the_index_of_torch_is_reached(bare: Path) -> None:
    (bare.parent / "torch-index").touch()
    assert set_up(bare).returncode == 0
    assert "--torch-backend cpu" in calls(bare)[3]
    shutil.rmtree(bare / ".venv")
    assert set_up(bare, UV_TORCH_BACKEND="auto").returncode == 0
    assert "--torch-backend auto" in calls(bare)[3]


def test_set_up_gives_uv_the_settings_of_pip(bare: Path) -> None:
    (bare.parent / "pip-settings").write_text(
        ":env:.find-links='/near'\nglobal.extra-index-url='file:///one\\nfile:///two'\n"
        "global.find-links='/far'\nglobal.constraint='/kept.txt'\n"
    )
    assert set_up(bare).returncode == 0
    installed = calls(bare)[3]
    for words in (
        "--extra-index-url file:///one --extra-index-url file:///two",
        "--find-links /near",
        "--constraint /kept.txt",
    ):
        assert words in installed
    assert "/far" not in installed and " --index-url" not in installed


@pytest.mark.parametrize("lacking", ["no-uv", "no-uv-install"])
def test_set_up_goes_on_with_pip_where_uv_is_not_to_be_had_or_fails(
    bare: Path, lacking: str
) -> None:
    (bare.parent / lacking).touch()
    done = set_up(bare)
    assert done.returncode == 0 and "pip instead of uv" in done.stderr
    made = [call for call in calls(bare) if call.startswith("-m pip install")]
    assert re.search(r"--no-compile torch==[\d.]+$", made[1])
    assert made[2].endswith(
        f"--constraint {bare}/constraints.txt --editable {bare}[report,runtime]"
    )


def test_set_up_uses_the_uv_that_is_there(bare: Path) -> None:
    there = bare.parent / "there"
    there.mkdir()
    shutil.copy(bare.parent / "uv", there / "uv")
    assert set_up(bare).returncode == 0  # makes the tools
    shutil.rmtree(bare / ".venv")
    calls(bare)
    assert set_up(bare, PATH=f"{there}:{bare.parent / 'tools'}").returncode == 0
    made = calls(bare)
    assert made[1].startswith("uv pip install")
    assert not any(call.startswith("-m pip install") for call in made)


def test_set_up_goes_on_after_a_failure(bare: Path) -> None:
    (bare.parent / "no-network").touch()
    failed = set_up(bare)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "the same command goes on from here" in failed.stderr
    (bare.parent / "no-network").unlink()
    calls(bare)
    assert set_up(bare).returncode == 0
    again = calls(bare)
    assert not any(call.startswith("-m venv") for call in again)  # what was installed stays
    assert any(call.startswith("uv pip install") for call in again)


def test_set_up_says_what_is_missing(bare: Path) -> None:
    old = run(bare / "setup.sh", PHAZE_PYTHON="/nowhere/python3")
    assert old.returncode == 1
    assert "no Python 3.11 or newer" in old.stderr
    assert run(bare / "setup.sh", "--all").returncode == 2


def test_a_python_without_the_packages_goes_on_in_the_environment_of_setup(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for room in REPOSITORY.glob("*/__init__.py"):
        (checkout / room.parent.name).symlink_to(room.parent)
    (checkout / "phaze.py").write_text((REPOSITORY / "phaze.py").read_text())
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho own environment: $2\n")
    python.chmod(0o755)
    bare = [
        sys.executable,
        "-S",
        "-E",
        str(checkout / "phaze.py"),
        "doctor",
    ]  # -S: no site-packages
    done = subprocess.run(bare, capture_output=True, text=True, check=False)
    assert done.stdout == "own environment: doctor\n"
