"""Charts as SVG, PNG and PDF files, without a browser."""

import json
import re
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from Common.errors import InputError
from Common.files import write_atomically
from Reporter.report.figures import Report
from Reporter.report.theme import LIGHT, chart_config, coloured

WIDE, NARROW = 760, 400  # points: as wide as two columns, and as one column, of a slide or a large page
PIXELS_PER_INCH = 216  # three pixels for each of the 72 points of an inch
ENDINGS = (".svg", ".png", ".pdf")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


def write_figures(report: Report, folder: Path) -> tuple[Path, ...]:
    """Write every figure of a report as SVG, PNG and PDF into ``folder``; returns the files.

    Raises:
        PhazeError: the folder cannot be written.
    """
    written = []
    for figure in report.figures:
        for ending in ENDINGS:
            path = folder / f"{_UNSAFE.sub('-', figure.name)}{ending}"  # its name has names of layers in it
            write_chart(figure.spec, path, WIDE if figure.abreast == 1 else NARROW, figure.alt)
            written.append(path)
    return tuple(written)


def write_chart(spec: dict[str, Any], path: Path, width: int, alt: str = "") -> None:
    """Write a chart as the ending of ``path`` says, in light colours, ``width`` points wide; an SVG says ``alt`` in its place.

    Raises:
        InputError: another ending than .svg, .png or .pdf.
        PhazeError: the file cannot be written.
    """
    import vl_convert

    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise InputError(f"picture {path} has an ending that cannot be drawn; use {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}")
    whole = json.dumps({**coloured(spec, LIGHT), "width": width, "config": chart_config(LIGHT)})
    svg: str = vl_convert.vegalite_to_svg(whole, allowed_base_urls=[])
    if ending == ".svg":
        write_atomically(path, _titled(svg, alt).encode())
    elif ending == ".png":
        write_atomically(path, vl_convert.svg_to_png(svg, ppi=PIXELS_PER_INCH))
    else:
        write_atomically(path, vl_convert.svg_to_pdf(svg))


def _titled(svg: str, alt: str) -> str:
    """``svg`` as one picture with a text of its own."""
    if not alt:
        return svg
    start = svg.index(">", svg.index("<svg")) + 1
    return f'{svg[: start - 1]} role="img"><title>{escape(alt)}</title>{svg[start:]}'
