"""The rows of the benchmark: what is asked, and which figure of it is reported."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
LAUNCH = REPOSITORY / "scripts" / "benchmark_launch.sh"
OWN_MODEL = REPOSITORY / "tests" / "builders" / "own_layers.py"
SEARCH_128 = "run_solver --model llama3-8b --device h100 --devices 128"
EVALUATE = "evaluate --model llama3-8b --device h100 --devices 8 --tp 8"
DEEPSEEK = "--model deepseek-v3 --tp 8 --ep 1"


class Figure(StrEnum):
    """What of a run is reported."""

    CPU = "CPU-s"  # user and system, of all its processes
    WALL = "wall s"  # until it ends
    ANSWERED = "wall s until best.json"
    PRINTED = "wall s until printed"  # the first line of the answer
    PEAK = "GiB"  # resident at most
    STATED = "stated"  # what the program prints last


@dataclass(frozen=True)
class Row:
    """A command line in a folder of its own (``{folder}``), with caches of its own.

    ``asked`` goes to phaze.py, of a ``program`` to scripts/benchmark_figures.py. ``prepared`` is
    run before and not counted: without it the folder and the caches are empty. ``stated`` is the
    unit of a figure that the program prints.
    """

    name: str
    asked: str
    figure: Figure = Figure.CPU
    prepared: str | None = None
    program: bool = False
    stated: str = ""

    @property
    def unit(self) -> str:
        """What the figure is in."""
        return self.stated or self.figure.value

    @property
    def is_time(self) -> bool:
        """Whether it is compared with what ``import torch`` takes."""
        return self.unit.startswith((Figure.CPU, Figure.WALL))


def cold_and_warm(name: str, asked: str) -> tuple[Row, Row]:
    """CPU-seconds with nothing there, and with the answer there."""
    words = f"{asked} --output {{folder}}"
    return Row(f"{name}, cold", words), Row(f"{name}, warm", words, prepared=words)


def search_rows(name: str, asked: str) -> tuple[Row, ...]:
    """As ``cold_and_warm``, and with all but the answer there, as for another folder."""
    first, second = (f"{asked} --output {{folder}}/{each}" for each in ("first", "second"))
    return (*cold_and_warm(name, asked), Row(f"{name}, other folder", second, prepared=first))


def in_process(name: str, asked: str, unit: str = Figure.CPU.value) -> Row:
    """A figure that a program takes with the graph held."""
    return Row(name, asked, Figure.STATED, program=True, stated=unit)


ROWS = (
    *search_rows("bertlarge", "run_solver --model bertlarge --micro-batch-size 1 2 4"),
    Row(
        "bertlarge until answered",
        "run_solver --model bertlarge --micro-batch-size 1 2 4 8 --output {folder}",
        Figure.ANSWERED,
    ),
    *search_rows("mixtral", "run_solver --model mixtral-8x7b --tp 8"),
    Row(
        "deepseek, graph there",
        f"run_solver {DEEPSEEK} --output {{folder}}",
        Figure.WALL,
        f"extract_graph {DEEPSEEK} --output {{folder}}",
    ),
    *search_rows("search of 128 devices", SEARCH_128),
    *search_rows(
        "layouts of a small gpt",
        "run_solver --model gpt:layers=4,hidden=256,heads=4 --layout auto --device h100 "
        "--devices 16",
    ),
    *cold_and_warm("evaluate", EVALUATE),
    Row(
        "evaluate a launch",
        f"evaluate --from {LAUNCH} --device h100 --output {{folder}}",
        Figure.PRINTED,
    ),
    Row(
        "extract own module",
        f"extract_graph --model {OWN_MODEL} --sequence-length 512 --tp 1 2 --output {{folder}}",
    ),
    Row("report", "report {folder}", prepared=f"{SEARCH_128} --output {{folder}}"),
    *cold_and_warm("validate", "validate"),
    *(
        in_process(f"search of {layers:,} layers on {devices:,}", f"search {layers} {devices}")
        for layers, devices in ((96, 4096), (96, 16_384), (384, 512), (1000, 512))
    ),
    in_process("plans of 100,000 devices", "many_devices"),
    Row("plans of 100,000 devices, memory", "many_devices", Figure.PEAK, program=True),
    in_process("one plan priced", "one_plan", "ms"),
    in_process("plans priced at once", "plans_at_once", "plans/s"),
)
