"""Colours and type of the report, light and dark, for the page and for its figures.

Charts name colours by role (``colour("forward")``); the page and the export put the colours of a
theme in their place, so that a chart is described once. Roles that meet in one chart differ in
lightness as well as in hue (Paul Tol's and Okabe and Ito's sets).
"""

from dataclasses import dataclass
from typing import Any

_PREFIX = "colour:"
FONT = "Helvetica Neue, Liberation Sans, Arial, sans-serif"


@dataclass(frozen=True)
class Theme:
    """Hexadecimal colours by role."""

    name: str
    roles: dict[str, str]


_COLOURS = {  # by role: light, dark
    "page": ("#ffffff", "#14171a"),
    "panel": ("#f6f7f8", "#1c2024"),
    "ink": ("#1b1f24", "#e8eaed"),
    "muted": ("#59626d", "#a8b0ba"),
    "rule": ("#d5dae0", "#394049"),
    "grid": ("#e9ecef", "#262b31"),
    "accent": ("#b3400e", "#ff9f66"),
    "mark": ("#33669a", "#7fb2e5"),
    "faint": ("#a9b4c0", "#5b6672"),
    "forward": ("#6fa8dc", "#9cc7f0"),
    "backward": ("#2c5f97", "#4c8bd0"),
    "recompute": ("#44aa99", "#5cc4b2"),
    "transfer": ("#ddaa33", "#e8c15c"),
    "tensor": ("#a65a17", "#d98a45"),
    "sequence": ("#e0a27a", "#f2c7a5"),
    "context": ("#5b8f3a", "#9ccc6b"),
    "expert": ("#8c2d5a", "#d774a8"),
    "sync": ("#cc5566", "#e27b89"),
    "host": ("#8a6d3b", "#b8965a"),
    "site": ("#2f7f86", "#6cc3c9"),
    "optimizer": ("#7b4f9d", "#b08ad0"),
    "bubble": ("#d3d8de", "#3b434c"),
    "launch": ("#8c8c6e", "#b3b394"),
    "before": ("#8894a3", "#8894a3"),
    "after": ("#b3400e", "#ff9f66"),
    "state": ("#2c5f97", "#4c8bd0"),
    "activations": ("#6fa8dc", "#9cc7f0"),
    "workspace": ("#ddaa33", "#e8c15c"),
    "reserved": ("#b9c0c8", "#5b6672"),
    "gemm": ("#2c5f97", "#4c8bd0"),
    "attention": ("#6fa8dc", "#9cc7f0"),
    "conv": ("#44aa99", "#5cc4b2"),
    "reduction": ("#ddaa33", "#e8c15c"),
    "elementwise": ("#b8404f", "#e27b89"),
    "gather": ("#7b4f9d", "#b08ad0"),
    "move": ("#8c8c6e", "#b3b394"),
    "collective": ("#a65a17", "#d98a45"),
    "label_on_dark": ("#ffffff", "#14171a"),
    "label_on_light": ("#1b1f24", "#14171a"),
    "little": ("#74c96b", "#4a6fb5"),
    "some": ("#21918c", "#2a9d8f"),
    "much": ("#3b528b", "#8fd35f"),
    "most": ("#440154", "#fde725"),
    "one": ("#2c5f97", "#7fb2e5"),
    "two": ("#cc5566", "#e27b89"),
    "three": ("#2e8b7a", "#5cc4b2"),
    "four": ("#ba8a1c", "#e8c15c"),
    "five": ("#7b4f9d", "#b08ad0"),
    "six": ("#6b7480", "#a8b0ba"),
}
LIGHT, DARK = (
    Theme(name, {role: pair[place] for role, pair in _COLOURS.items()})
    for place, name in enumerate(("light", "dark"))
)
RAMP = ("little", "some", "much", "most")
# pixels from a legend to what is below it: the title of an axis, or the marks
BELOW_TITLE, BELOW_LEGEND = 30, 12
SERIES = ("one", "two", "three", "four", "five", "six")


def colour(role: str) -> str:
    """What stands in a chart for the colour of a role, in any theme."""
    if role not in LIGHT.roles:
        raise KeyError(role)
    return _PREFIX + role


def palette(theme: Theme) -> dict[str, str]:
    """What ``colour`` stands for in a theme."""
    return {_PREFIX + role: value for role, value in theme.roles.items()}


def coloured(part: Any, theme: Theme) -> Any:
    """``part`` of a chart's JSON with the colours of a theme."""
    colours = palette(theme)

    def put(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: put(each) for key, each in value.items()}
        if isinstance(value, list):
            return [put(each) for each in value]
        return colours.get(value, value) if isinstance(value, str) else value

    return put(part)


def chart_config(theme: Theme) -> dict[str, Any]:
    """Vega-Lite's ``config``: no frames, quiet axes, legends above."""
    role = theme.roles
    fonts = {"labelFont": FONT, "titleFont": FONT}
    text = {"labelColor": role["muted"], "titleColor": role["ink"], **fonts}
    return {
        # the chart is one picture with a text of its own; a label on each of thousands of marks
        # helps nobody
        "aria": False,
        "background": role["page"],
        "font": FONT,
        "view": {"stroke": None},
        "axis": {
            **text,
            "labelFontSize": 11,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "titlePadding": 8,
            "labelPadding": 4,
            "domainColor": role["rule"],
            "tickColor": role["rule"],
            "gridColor": role["grid"],
            "tickSize": 4,
        },
        "axisY": {
            "titleAnchor": "end",
            "titleAngle": 0,
            "titleAlign": "left",
            "titleX": 0,
            "titleY": -10,
            "domain": False,
        },
        "axisX": {"grid": False, "labelAngle": 0, "labelOverlap": True, "labelSeparation": 5},
        "legend": {
            **text,
            "orient": "top",
            "offset": BELOW_TITLE,
            "titlePadding": 4,
            "labelFontSize": 11,
            "titleFontSize": 11,
            "titleFontWeight": "normal",
        },
        "text": {"color": role["ink"], "font": FONT, "fontSize": 11},
        "rule": {"color": role["muted"]},
        "bar": {"discreteBandSize": {"band": 0.7}},
    }
