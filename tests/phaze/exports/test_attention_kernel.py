"""The kernel of attention that a plan was priced with is what its launch asks for."""

from pathlib import Path

import pytest

import phaze
from phaze.exports.launchers import read_launch

PLAN = ["--model", "llama:layers=2,hidden=256,heads=4,kv_heads=2,ffn=512,vocabulary=1024"]


@pytest.mark.parametrize(
    ("program", "file", "kernel", "said"),
    [
        ("megatron_lm", "launch.sh", "flash_3", "--attention-backend flash "),
        ("megatron_lm", "launch.sh", "cudnn", "--attention-backend fused "),
        ("megatron_bridge", "phaze_recipe.py", "flash_3", "AttnBackend.flash,"),
        ("megatron_bridge", "phaze_recipe.py", "cudnn", "AttnBackend.fused,"),
        ("hf_trainer", "arguments.py", "flash_3", 'ATTENTION = "flash_attention_3"'),
        ("hf_trainer", "arguments.py", "flash_2", 'ATTENTION = "sdpa"'),
    ],
)
def test_a_launch_asks_for_the_kernel_that_was_priced(
    program: str, file: str, kernel: str, said: str, tmp_path: Path
) -> None:
    plan, folder = tmp_path / "plan.yaml", tmp_path / "launch"
    words = "device: h100\ndp: 2\nglobal_batch_size: 4\nsequence_length: 256\n"
    plan.write_text(f"model: '{PLAN[1]}'\n{words}attention_kernel: {kernel}\n")
    asked = ["export", plan, "--to", program, "--output", folder, "--quiet"]
    assert phaze.main([*map(str, asked)]) == 0
    assert said in (folder / file).read_text()
    read = read_launch(folder / file, {}).settings
    assert read["attention"] == "flash"
    assert program != "hf_trainer" or read.get("attention_kernel", "flash_2") == kernel
