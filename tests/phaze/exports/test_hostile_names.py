"""Names that would be commands, keys or code: no exporter lets one out of its place, files with
some are refused."""

from __future__ import annotations

import ast
import itertools
import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import phaze
from Estimator.hardware_files import load_cluster
from Estimator.plans.degrees import UniformPlan
from phaze.exports import jobs
from phaze.exports.chakra.astra_sim import Dimension, network_file
from phaze.exports.chakra.readme import readme
from phaze.exports.launch import ExportedFile, Launch
from phaze.exports.registry import HOMES, exporter
from phaze_common.echo import breaks_line, steers
from tests.phaze.exports.launches import launch_of
from tests.phaze.exports.titan_launches import launch_of as titan_launch_of

MARK = "pwned"
PARTS = (
    *("\n", "\r", "\u2028", "\u2029", "\x85", "\x0c", "\0", "\x1b[2J", "\t", "\ud800", "\u202e"),
    *(
        "$(touch pwned)",
        "`touch pwned`",
        "; touch pwned",
        "&& touch pwned",
        "| touch pwned",
        "> pwned",
        "${IFS}",
        "$$",
    ),
    *(
        "'",
        '"',
        "'''",
        '"""',
        "\\",
        "\\\n",
        "#",
        "%",
        "%x",
        "{{pwned}}",
        "{pwned}",
        ": pwned",
        "- pwned",
        "--pwned",
        "-rf",
        "!!python",
    ),
    *(
        "#SBATCH --pwned",
        "\n#SBATCH --pwned",
        "\nimport pwned",
        "</code><script>pwned</script>",
        "| pwned |",
        "](pwned)",
        "=pwned",
    ),
    *("é", "模", "\U0001f4a9", " ", "H100", "pwned"),
)
NAMES = st.lists(st.sampled_from(PARTS), min_size=1, max_size=6).map("".join)
PLAIN = UniformPlan(micro_batch_size=2, global_batch_size=32, dp=16, zero_stage=1)
WITHOUT_ZERO = replace(PLAIN, zero_stage=0, overlap_gradients=False)
TEXTS = tuple(name for name in HOMES if name != "chakra")


def hostile(launch: Launch, model: str, device: str, cluster: str) -> Launch:
    """``launch`` by other names; its model's sizes stay."""
    found = replace(launch, plan=replace(launch.plan, model=model), device=device, cluster=cluster)
    found.__dict__["shape"] = launch.shape  # as the launch keeps it
    return found


def exported(name: str, launch: Launch) -> list[ExportedFile]:
    program = exporter(name)
    made = list(program.files(launch))
    return made + [jobs.job_file(kind, name, launch) for kind in jobs.KINDS if program.node_script]


def commands(text: str) -> list[str]:
    """What of a script bash would run: all but comments, here within lines."""
    lines = (re.sub(r"(^|\s)#.*$", "", line).rstrip() for line in text.split("\n"))
    return [line for line in lines if line and not line.startswith("#")]


def job_of(text: str) -> str:
    """The name of the job in a job file, which is made of the model's."""
    found = re.search(r"--job-name=(\S+)|^metadata: \{name: (.*)\}$", text, re.MULTILINE)
    assert found is not None
    return found[1] or found[2]


def check(file: ExportedFile, plain: ExportedFile) -> None:
    """``file`` says what ``plain``, the same of harmless names, says to whoever reads it, and no
    more."""
    text, other = (
        each.content if isinstance(each.content, str) else each.content.decode()
        for each in (file, plain)
    )
    text.encode()  # which half a letter is not
    if Path(file.path).stem == "job":
        assert re.fullmatch(r"phaze(-[a-z0-9]+)*", job_of(text))
        text, other = (each.replace(job_of(each), "JOB") for each in (text, other))
    assert len(text.split("\n")) == len(other.split("\n"))
    assert not steers(text.replace("\t", "")) and not breaks_line(text.replace("\n", ""))
    suffix = Path(file.path).suffix
    if suffix in {".sh", ".sbatch"}:
        assert (
            subprocess.run(
                ["bash", "-n"], input=text, text=True, check=False, capture_output=True
            ).returncode
            == 0
        )
        assert commands(text) == commands(other)
        directives = [
            [line for line in each.split("\n") if line.startswith("#SBATCH")]
            for each in (text, other)
        ]
        assert directives[0] == directives[1]
    elif suffix in {".yaml", ".yml"}:
        documents = [list(yaml.safe_load_all(each)) for each in (text, other)]
        assert documents[0] == documents[1]
    elif suffix == ".json":
        documents = [json.loads(each) for each in (text, other)]
        for document in documents:
            document.get("phaze", {}).pop("model", None)
        assert documents[0] == documents[1]
    elif suffix == ".py":
        trees = [ast.parse(each) for each in (text, other)]
        for tree in trees:
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    node.value = ""
        assert ast.dump(trees[0]) == ast.dump(trees[1])
    elif suffix == ".md":
        shown = re.sub(r"`[^`\n]*`", "", text)  # a page shows code as it stands
        assert "<script" not in shown and "](pwned)" not in shown
        assert [line.count("|") - line.count("\\|") for line in text.split("\n")] == [
            line.count("|") for line in other.split("\n")
        ]
    else:
        raise AssertionError(f"no reader of {file.path}")


@pytest.mark.parametrize("name", TEXTS)
@settings(max_examples=40, deadline=None)
@given(model=NAMES, device=NAMES, cluster=NAMES)
def test_names_stay_in_their_place_in_every_export(
    name: str, model: str, device: str, cluster: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        first = launch_of(PLAIN) if name.startswith("megatron") else titan_launch_of(PLAIN)
        others = titan_launch_of(replace(PLAIN, zero_stage=3)), launch_of(WITHOUT_ZERO)
        told = [each for each in (first, *others) if exporter(name).unsupported(each) is None]
        assert told, f"add a launch here that {name} can be told"
        launch = told[0]
        plain = exported(name, launch)
        for module in ("megatron_lm.arguments", "nemo.settings"):
            home = __import__(f"phaze.exports.{module}", fromlist=["find_model"])
            if hasattr(home, "find_model"):
                known = home.find_model(launch.plan.model)
                patch.setattr(home, "find_model", lambda text, known=known: known)
        odd = exported(name, hostile(launch, model, device, cluster))
    assert [each.path for each in odd] == [each.path for each in plain]
    for file, harmless in zip(odd, plain, strict=True):
        check(file, harmless)


@settings(max_examples=60, deadline=None)
@given(model=NAMES, device=NAMES, cluster=NAMES)
def test_names_stay_in_their_place_beside_traces(model: str, device: str, cluster: str) -> None:
    launch, tier = launch_of(PLAIN), load_cluster("dgx_h100").tiers[0]
    page = readme(hostile(launch, model, device, cluster), 10, None)
    check(ExportedFile("README.md", page), ExportedFile("README.md", readme(launch, 10, None)))
    network = [
        ExportedFile("network.yml", network_file((Dimension(replace(tier, name=each), 2, 1),)))
        for each in (cluster, "a")
    ]
    check(*network)


@pytest.mark.parametrize("end", ["\n", "\r", "\u2028", "\u2029", "\x85"])
@pytest.mark.parametrize("kind", ["device", "cluster", "tier"])
def test_a_file_whose_name_is_on_two_lines_is_refused(
    kind: str, end: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = {"device": "devices", "cluster": "clusters", "tier": "clusters"}[kind]
    home = Path(phaze.__file__).parents[1] / "Estimator" / "hardware"
    stated = yaml.safe_load(
        (home / folder / f"{'a100_80gb' if kind == 'device' else 'dgx_a100'}.yaml").read_text()
    )
    (stated["tiers"][0] if kind == "tier" else stated)["name"] = f"H100{end}touch pwned"
    (tmp_path / "odd.yaml").write_text(json.dumps(stated))
    flag = "device" if kind == "device" else "cluster"
    words = {"device": "a100_80gb", "cluster": "dgx_a100"} | {flag: str(tmp_path / "odd.yaml")}
    asked = itertools.chain.from_iterable((f"--{key}", value) for key, value in words.items())
    assert phaze.main(["evaluate", "--model", "bertbase", "--global-batch-size", "8", *asked]) == 2
    said = capsys.readouterr().err
    assert ("on several lines" in said or "control characters" in said) and said.count("\n") == 1
