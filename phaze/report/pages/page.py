"""A report as one self-contained HTML page."""

import contextlib
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from phaze.report.pages.figures import Report
from phaze.report.pages.theme import DARK, LIGHT, Theme, chart_config, palette
from phaze.report.sentences.glossary import used_in
from phaze_common.compiled_code import is_own
from phaze_common.errors import PhazeError
from phaze_common.files import (
    artefact_bytes,
    library_version,
    load_or_set_aside,
    write_atomically,
)
from phaze_common.json_text import parse_json
from phaze_common.sealed import sealed, unsealed
from phaze_common.user_cache import user_cache


@dataclass(frozen=True)
class Served:
    """Where the addresses of a page's server begin, and the point that the page is about."""

    api: str
    point: int | None


def page(report: Report, served: Served | None = None) -> str:
    """The page with everything that draws its charts, so that it asks for nothing else.

    One that is ``served`` asks its server about points that are clicked.
    """
    import jinja2

    loader = jinja2.FunctionLoader(_template)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    specs = {each.name: {"spec": each.spec, "renderer": each.renderer} for each in report.figures}
    return environment.get_template("page.html").render(
        report=report,
        served=served,
        meanings=used_in(_text(report)),
        specs=specs,
        themes={
            theme.name: {"palette": palette(theme), "config": chart_config(theme)}
            for theme in (LIGHT, DARK)
        },
        colours={"light": _variables(LIGHT), "dark": _variables(DARK)},
        drawing=_drawing() if specs else "",
    )


def _variables(theme: Theme) -> str:
    return " ".join(
        f"--{role}: {theme.roles[role]};"
        for role in ("page", "panel", "ink", "muted", "rule", "grid", "accent")
    )


def _text(report: Report) -> str:
    """What stands on the page, names of columns and first columns included."""
    texts = [
        report.answer,
        *(each.what for each in report.numbers),
        *(text for each in report.reasons for text in each.sentences),
    ]
    for part in (part for section in report.sections for part in section.parts):
        texts += part.paragraphs
        for table in (
            *part.tables,
            *(figure.table for figure in part.figures if figure.table is not None),
        ):
            texts += [*table.columns, *(row[0] for row in (*table.rows, *table.foot))]
    return " ".join(texts)


def _template(name: str) -> str:
    return (files(__package__) / "templates" / name).read_text(encoding="utf-8")


@cache
def _drawing() -> Any:
    """Vega, Vega-Lite and what embeds them, as one script that is ours to trust."""
    import markupsafe

    bundle = _bundle()
    return markupsafe.Markup(bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--"))


def _bundle() -> str:
    """The script, which takes longer to bundle than all else of a page: kept in the user's cache
    where nobody else can write, since pages run it."""
    folder = user_cache()
    if folder is None or (folder.exists() and not is_own(folder)):
        return _bundled()
    path = folder / f"vega-{library_version('vl-convert-python')}.json"
    kept = load_or_set_aside(path, _kept)
    if kept is None:
        kept = _bundled()
        with contextlib.suppress(PhazeError):  # a page needs no cache
            write_atomically(path, sealed(json.dumps(kept).encode()), private=True)
    return kept


def _kept(path: Path) -> str:
    return str(parse_json(unsealed(artefact_bytes(path), str(path)), str(path)))


def _bundled() -> str:
    import vl_convert

    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
