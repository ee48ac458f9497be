"""Charts as SVG, PNG and PDF files, without a browser, and the data in them as parquet."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from phaze.report.pages.charts import legend_columns
from phaze.report.pages.figures import Figure, Report
from phaze.report.pages.theme import LIGHT, chart_config, coloured
from phaze_common.errors import InputError
from phaze_common.written_files import check_replaceable, write_output, write_outputs

WIDE, NARROW = 760, 400  # points: as two columns, and as one, of a slide or a large page
PIXELS_PER_INCH = 216  # three pixels for each of the 72 points of an inch
ENDINGS = (".svg", ".png", ".pdf")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


def write_figures(report: Report, folder: Path, *, force: bool = False) -> tuple[Path, ...]:
    """Write every figure as SVG, PNG and PDF into ``folder``, and its data as parquet.

    A figure drawn from several tables has a file for each, ``NAME.parquet`` that with the most
    rows, then ``NAME-2.parquet``.

    Raises:
        InputError: one would replace what phaze did not write, and not ``force``.
        PhazeError: the folder cannot be written.
    """
    tables = dict[str, bytes]()
    charts = dict[str, Figure]()
    for figure in report.figures:
        stem = _UNSAFE.sub("-", figure.name)  # its name has names of layers in it
        for place, content in enumerate(figure_tables(figure.spec), start=1):
            tables[f"{stem}{f'-{place}' if place > 1 else ''}.parquet"] = content
        charts |= dict.fromkeys((f"{stem}{ending}" for ending in ENDINGS), figure)
    check_replaceable(folder, {**tables, **dict.fromkeys(charts)}, force=force, flag="--figures")
    write_outputs(folder, tables, force=True)
    for name, figure in charts.items():
        write_chart(figure.spec, folder / name, WIDE if figure.abreast == 1 else NARROW, figure.alt)
    return tuple(folder / name for name in (*tables, *charts))


def figure_tables(spec: dict[str, Any]) -> list[bytes]:
    """The tables that a chart is drawn from, as parquet, the longest first; empty cells null."""
    found: dict[str, dict[str, Any]] = {}
    datasets = spec.get("datasets", {})

    def collect(part: Any) -> None:
        if isinstance(part, dict):
            data = part.get("data")
            if isinstance(data, dict):
                text = datasets.get(data.get("name"), data.get("values"))
                if isinstance(text, str):
                    found.setdefault(text, data["format"]["parse"])
            for each in part.values():
                collect(each)
        elif isinstance(part, list):
            for each in part:
                collect(each)

    collect(spec)
    return [
        _parquet(text, kinds)
        for text, kinds in sorted(found.items(), key=lambda item: -item[0].count("\n"))
    ]


def _parquet(text: str, kinds: dict[str, str]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = list(csv.DictReader(io.StringIO(text)))
    columns = {}
    for name, kind in kinds.items():
        cells = [row[name] for row in rows]
        if kind == "string":
            columns[name] = pa.array(cells, pa.string())
        else:
            numbers = [float(cell) if cell else None for cell in cells]
            columns[name] = pa.array(numbers, pa.float64())
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, compression="zstd")
    return buffer.getvalue()


def write_chart(spec: dict[str, Any], path: Path, width: int, alt: str = "") -> None:
    """Write a chart in light colours, ``width`` points wide, as the ending of ``path`` says.

    An SVG says ``alt`` in its place.

    Raises:
        InputError: another ending than .svg, .png or .pdf.
        PhazeError: the file cannot be written.
    """
    import vl_convert

    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise InputError(
            f"picture {path} has an ending that cannot be drawn; use {', '.join(ENDINGS[:-1])} or "
            f"{ENDINGS[-1]}"
        )
    config = chart_config(LIGHT)
    columns = legend_columns(spec, width)
    if columns is not None:
        config["legend"]["columns"] = columns
    whole = json.dumps({**coloured(spec, LIGHT), "width": width, "config": config})
    svg: str = vl_convert.vegalite_to_svg(whole, allowed_base_urls=[])
    if ending == ".svg":
        write_output(path, _titled(svg, alt).encode(), force=True)
    elif ending == ".png":
        write_output(path, vl_convert.svg_to_png(svg, ppi=PIXELS_PER_INCH), force=True)
    else:
        write_output(path, vl_convert.svg_to_pdf(svg), force=True)


def _titled(svg: str, alt: str) -> str:
    """``svg`` as one picture with a text of its own."""
    if not alt:
        return svg
    start = svg.index(">", svg.index("<svg")) + 1
    return f'{svg[: start - 1]} role="img"><title>{escape(alt)}</title>{svg[start:]}'
