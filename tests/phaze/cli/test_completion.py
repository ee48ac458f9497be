"""``phaze completion``: what a real shell offers behind what was typed."""

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import phaze
from GraphExtractor.models.registry import listed_models
from phaze.cli.arguments import mode_parsers
from phaze.cli.listed_kinds import LISTED
from phaze.cli.modes import MODES

REPOSITORY = Path(__file__).resolve().parents[3]
SHELLS = ("bash", "zsh", "fish")


def script(shell: str) -> str:
    return _made(shell)


@cache
def _made(shell: str) -> str:
    words = [sys.executable, "phaze.py", "completion", shell]
    return subprocess.run(
        words, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True
    ).stdout


def offered(line: str, folder: Path) -> set[str]:
    """What bash offers for the last word of a line, words split as readline splits them."""
    words = line.replace("=", " = ").split(" ") if "=" in line else line.split(" ")
    listed = " ".join(f"'{word}'" for word in words)
    tried = (
        f"COMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}; COMPREPLY=(); _phaze; printf "
        "'%s\\n' \"${COMPREPLY[@]}\""
    )
    done = subprocess.run(
        ["bash", "--norc", "-uc", f"{script('bash')}\n{tried}"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("phaze ", set(MODES)),
        ("phaze ev", {"evaluate"}),
        ("phaze list ", set(LISTED)),
        ("phaze list de", {"devices", "design-spaces"}),
        ("phaze evaluate --device a1", {"a100_40gb", "a100_80gb", "a10g"}),
        ("phaze evaluate --device=h1", {"h100", "h100_96gb", "h100_pcie"}),
        ("phaze run_solver --model gpt2 bertl", {"bertlarge"}),
        (
            "phaze run_solver --cluster dgx_",
            {"dgx_a100", "dgx_b200", "dgx_b300", "dgx_h100", "dgx_h200"},
        ),
        ("phaze run_solver --recompute none f", {"full"}),
        ("phaze run_solver --hbm", {"--hbm-size", "--hbm-bandwidth"}),
        ("phaze --phaze_exec_type eval", {"evaluate"}),
        ("phaze --phaze_exec_type evaluate --schedule g", {"gpipe"}),
        (
            "phaze --phaze_m",
            {
                "--phaze_model",
                "--phaze_model_names",
                "--phaze_micro_batch_size",
                "--phaze_max_tmp_width",
            },
        ),
        ("phaze models mixtral", {name for name in listed_models() if name.startswith("mixtral")}),
        ("phaze completion ", set(SHELLS)),
        ("phaze run_solver --quiet --prec", {"--precision"}),
        ("phaze run_solver --config ", set()),  # files, which bash offers by itself
        ("phaze report ", set()),
        (
            "phaze evaluate --model gpt2 --d",
            {"--device", "--design-space", "--devices", "--dispatcher", "--dispatch-fp8", "--dp"},
        ),
    ],
)
def test_bash_offers_what_can_stand_there(line: str, words: set[str], tmp_path: Path) -> None:
    assert offered(line, tmp_path) == words


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize("mode", MODES)
def test_bash_offers_every_flag_of_a_mode(mode: str, tmp_path: Path) -> None:
    assert offered(f"phaze {mode} -", tmp_path) >= set(mode_parsers()[mode].flags)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_that_is_there_takes_its_script_without_a_word(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}")
    file = tmp_path / "completion"
    file.write_text(script(shell))
    done = subprocess.run(
        [shell, "-c", f"source {file}"], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_fish_is_told_every_flag_once_and_the_values_that_are_known() -> None:
    lines = [
        line
        for line in script("fish").splitlines()
        if "__fish_seen_subcommand_from evaluate" in line
    ]
    for flag in mode_parsers()["evaluate"].flags:
        assert sum(f"-l {flag[2:]} " in f"{line} " for line in lines) == 1, flag
    (device,) = (line for line in lines if "-l device " in line)
    assert "'a100_40gb a100_80gb " in device


def test_without_a_shell_it_is_bash(capsys: pytest.CaptureFixture[str]) -> None:
    assert phaze.main(["completion"]) == 0
    assert capsys.readouterr().out.startswith("# Completes phaze in bash.")


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert phaze.main(["completion", "tcsh"]) == 2
    assert (
        capsys.readouterr().err
        == "phaze: nothing is completed in 'tcsh'; the shells are bash, zsh, fish\n"
    )
