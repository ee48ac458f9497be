"""``phaze models``: what can be named as a model, and what of it is known without building it."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from phaze.cli import mode
from phaze.cli.exit_status import DONE
from phaze.cli.printing import print_answer
from phaze_common.numbers import number
from phaze_common.refusals import Refusals

if TYPE_CHECKING:
    from GraphExtractor.models.base import ModelFamily


@dataclass(frozen=True, kw_only=True)
class Models(mode.Command):
    """Tell the sizes and tensor parallel widths of models, of listed ones or of your own."""

    names: tuple[str, ...] = mode.word(
        (), "models to show, by name, dimensions or path (default: all that are listed)", "NAME"
    )


def run(command: Models) -> int:
    """Print the listed models, or those that were named."""
    from GraphExtractor.models.dimensions import family_names
    from GraphExtractor.models.registry import canonical_name, find_model, listed_models
    from GraphExtractor.models.resnet_dimensions import EXAMPLE
    from phaze.report.table import plain_table
    from phaze.report.terminal import print_lines

    refusals = Refusals()
    found = [refusals.attempt(partial(canonical_name, name), "") for name in command.names]
    refusals.raise_any()
    names = found or list(listed_models())
    rows = [_row(name, find_model(name)) for name in dict.fromkeys(names)]
    spared = ("also called", "experts", "family", "active", "sequence", "hidden")
    table = plain_table("models", [_shown(row) for row in rows], spared)
    print_answer(json.dumps(rows, indent=2), lambda: [table], command)
    if command.output_format == "json":
        return DONE
    lines = [
        "a tensor parallel width (tp) divides the number given; parameters are those of the "
        "released checkpoint or the paper",
        "a model is also named by its dimensions, as in gpt:layers=24,hidden=2304,heads=24 "
        f"(families {', '.join(family_names())}) or {EXAMPLE},",
        "by the path of a Hugging Face config.json, and by that of a model.py of your own with "
        "build() and example_inputs()",
    ]
    print_lines(lines, sys.stdout)
    return DONE


def _row(name: str, family: ModelFamily) -> dict[str, object]:
    """What is known of a model; null where it does not apply, or only building it tells."""
    from GraphExtractor.models.registry import listed_aliases
    from GraphExtractor.widths import allowed_widths

    known_widths = family.described or bool(family.divided_sizes)
    return {
        "name": name,
        "family": type(family).__name__,
        "parameters": family.published_parameter_count or None,
        "active_parameters": family.published_active_count or None,
        "layers": family.layers or None,
        "hidden": getattr(family, "hidden", None),
        "heads": getattr(family, "heads", None),
        "kv_heads": getattr(family, "kv_heads", None),
        "experts": family.experts or None,
        "sequence_length": (family.sequence_length or None) if family.has_sequence else None,
        "tp_widths": list(allowed_widths(family)) if known_widths else None,
        "aliases": [alias for alias, model in listed_aliases().items() if model == name],
    }


def _shown(row: dict[str, object]) -> dict[str, object]:
    from GraphExtractor.names import label

    heads = "-" if row["heads"] is None else f"{row['heads']}"
    if row["kv_heads"] != row["heads"]:
        heads += f" ({row['kv_heads']} kv)"
    widths = row["tp_widths"]
    return {
        "name": label(str(row["name"])),
        "family": row["family"],
        "parameters": _count(row["parameters"]),
        "active": _count(row["active_parameters"]),
        "layers": row["layers"] or "-",
        "hidden": row["hidden"] or "-",
        "heads": heads,
        "experts": row["experts"] or "-",
        "sequence": row["sequence_length"] or "-",
        "tp": str(max(widths)) if isinstance(widths, list) else "derived",
        "also called": ", ".join(row["aliases"]) if isinstance(row["aliases"], list) else "",
    }


def _count(parameters: object) -> str:
    if not isinstance(parameters, int):
        return "-"
    return f"{number(parameters / 1e9)}B" if parameters >= 1e9 else f"{number(parameters / 1e6)}M"


MODE = mode.Mode("models", mode.FIND_YOUR_WAY, Models, run)
