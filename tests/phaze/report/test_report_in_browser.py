"""The page in a real browser: laptop and phone, light and dark, with mouse, keyboard and no
network."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import phaze.report.pages as templates
from phaze.report.pages.comparison_report import comparison_report
from phaze.report.pages.page import page as page_of
from phaze.report.pages.points.points_report import points_report
from phaze.report.pages.search_report import search_report
from phaze.runs.finished_run import FinishedRun
from phaze.studies.explain.comparison import compare_runs
from phaze.studies.sweep.axes import Sweep
from phaze.studies.sweep.points_read import read_points

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.browser
CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SIZES = {"laptop": {"width": 1366, "height": 768}, "phone": {"width": 390, "height": 844}}
SMALLEST_TARGET = 40  # pixels that a finger needs
MARKS = """view => {
    let count = 0;
    const walk = item => {
        if (item.marktype === "symbol" && item.role === "mark") count += item.items.length;
        (item.items || []).forEach(walk);
    };
    walk(view.scenegraph().root);
    return count;
}"""
DRAWN = """() => [...document.querySelectorAll(".chart")].map(place => {
    const canvas = place.querySelector("canvas");
    const kinds = [".mark-rect path", ".mark-symbol path", ".mark-line path", ".mark-rule line"];
    const shapes = place.querySelectorAll(kinds.map(kind => `svg ${kind}`).join(", ")).length;
    let inked = 0;
    if (canvas) {
        const pixels = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer);
        inked = new Set(pixels).size;
    }
    const width = place.querySelector("svg, canvas").clientWidth;
    return {name: place.dataset.figure, shapes, inked, width, room: place.clientWidth};
})"""
FAINT_TEXTS = """() => {
    const channels = text => (text.match(/[\\d.]+/g) || []).map(Number);
    const luminance = ([red, green, blue]) => [red, green, blue]
        .map(value => value / 255)
        .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
        .reduce((sum, value, place) => sum + value * [0.2126, 0.7152, 0.0722][place], 0);
    const behind = element => {
        for (let each = element; each; each = each.parentElement) {
            const colour = channels(getComputedStyle(each).backgroundColor);
            if (colour.length === 3 || colour[3] === 1) return colour;
        }
        return [255, 255, 255];
    };
    const contrast = (first, second) => {
        const [low, high] = [luminance(first), luminance(second)].sort((a, b) => a - b);
        return (high + 0.05) / (low + 0.05);
    };
    const faint = [];
    for (const element of document.querySelectorAll("body *")) {
        const direct = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
        if (!direct || ["SCRIPT", "STYLE", "NOSCRIPT", "OPTION"].includes(element.tagName)) continue;
        const svg = element.closest("svg");
        if (svg && !element.closest(".role-axis-label, .role-axis-title, .role-legend-label, .role-legend-title")) continue;
        const colour = channels(svg ? element.closest("[fill]").getAttribute("fill").replace(/^#(..)(..)(..)$/, (_, r, g, b) =>
            [r, g, b].map(value => parseInt(value, 16)).join(",")) : getComputedStyle(element).color);
        if (contrast(colour, behind(element)) < 4.5) faint.push(element.textContent.trim().slice(0, 40));
    }
    return faint;
}"""


@dataclass
class Opened:
    """A page as a reader has it, with everything it said or asked for."""

    page: Any
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def view(self, figure: str) -> Any:
        return self.page.evaluate_handle(
            f"document.querySelector('[data-figure=\"{figure}\"]').view"
        )

    def marks(self, figure: str) -> int:
        counted: int = self.view(figure).evaluate(MARKS)
        return counted

    def signal(self, figure: str, name: str) -> Any:
        return self.view(figure).evaluate("(view, name) => view.signal(name)", name)

    def wait_for(self, theme: str) -> None:
        self.page.wait_for_selector(f"html[data-drawn={theme}]", state="attached", timeout=30_000)


Open = Callable[[Path, str, str], Opened]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    with playwright.sync_playwright() as engine:
        running = engine.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield running
        running.close()


@pytest.fixture
def opened(browser: Any) -> Iterator[Open]:
    """Opens a file at a size in a theme; nothing may leave the machine, and nothing may go wrong
    until the test is over."""
    pages: list[Opened] = []

    def open_file(path: Path, size: str, theme: str) -> Opened:
        phone = size == "phone"
        context = browser.new_context(
            viewport=SIZES[size], color_scheme=theme, has_touch=phone, is_mobile=phone
        )
        seen = Opened(context.new_page())
        pages.append(seen)
        context.route(lambda url: not url.startswith("file:"), lambda route: route.abort())
        seen.page.on("request", lambda request: seen.asked.append(request.url))
        seen.page.on("console", lambda message: seen.said.append(message.text))
        seen.page.on("pageerror", lambda error: seen.said.append(str(error)))
        seen.page.goto(path.as_uri())
        return seen

    yield open_file
    for seen in pages:
        assert seen.said == []
        assert [url for url in seen.asked if not url.startswith("file:")] == []
        assert len(seen.asked) == 1
        seen.page.context.close()


@pytest.fixture(scope="module")
def report(finished: FinishedRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page_of(search_report(finished)), encoding="utf-8")
    return path


@pytest.mark.some(1)
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_everything_is_drawn_within_the_width_and_legible(
    report: Path, opened: Open, size: str, theme: str
) -> None:
    seen = opened(report, size, theme)
    seen.wait_for(theme)
    charts = seen.page.evaluate(DRAWN)
    assert len(charts) >= 15
    for chart in charts:
        assert chart["shapes"] >= 2 or chart["inked"] > 5, chart
        assert 0.8 * chart["room"] <= chart["width"] <= chart["room"], chart
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"]
    assert seen.page.evaluate(FAINT_TEXTS) == []
    assert (
        seen.page.locator("svg [aria-label]").count() == 0
    )  # a chart is one picture with a text, not thousands
    assert seen.page.get_by_role("img").count() == len(charts)
    if size == "phone":
        heights = seen.page.eval_on_selector_all(
            "nav a, summary, .filters label",
            "all => all.map(each => each.getBoundingClientRect().height)",
        )
        assert min(heights) >= SMALLEST_TARGET


def test_filters_change_what_is_drawn_and_outlast_a_change_of_theme(
    report: Path, opened: Open, finished: FinishedRun
) -> None:
    figure = "throughput-area-energy"
    seen = opened(report, "laptop", "light")
    seen.wait_for("light")
    with_every_size = finished.designs[finished.designs["status"] == "evaluated"]
    differ = {
        "hbm_bytes",
        "memory_bytes",
        "throughput_bound_samples_per_s",
    }  # in what is drawn once
    evaluated = with_every_size.drop_duplicates(
        [name for name in with_every_size if name not in differ]
    )
    named = 1 + len({chip.name for chip in finished.result.references})
    assert seen.marks(figure) == len(evaluated) + named
    seen.page.get_by_role("checkbox", name="Pareto front only").check()
    seen.view(figure).evaluate("view => view.runAsync().then(() => null)")
    assert seen.marks(figure) == int(evaluated["on_front"].sum()) + named
    seen.page.get_by_role("combobox", name="micro-batch").select_option(label="4")
    seen.view(figure).evaluate("view => view.runAsync().then(() => null)")
    chosen = int((evaluated["on_front"] & (evaluated["micro_batch_size"] == 4)).sum())
    assert seen.marks(figure) == chosen + named < len(evaluated)
    seen.page.get_by_role("combobox", name="HBM").select_option(label="16")
    seen.view(figure).evaluate("view => view.runAsync().then(() => null)")
    of_this_size = with_every_size[with_every_size["hbm_bytes"] == 16 * 2**30]
    chosen = int((of_this_size["on_front"] & (of_this_size["micro_batch_size"] == 4)).sum())
    assert seen.marks(figure) == chosen + named
    background = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
    seen.page.emulate_media(color_scheme="dark")
    seen.wait_for("dark")
    assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") != background
    assert seen.marks(figure) == chosen + named
    assert seen.page.get_by_role("checkbox", name="Pareto front only").is_checked()


def test_hovering_tells_everything_about_a_point(report: Path, opened: Open) -> None:
    seen = opened(report, "laptop", "light")
    seen.wait_for("light")
    for figure, words in {
        "throughput-area-energy": ["optimum", "TC", "samples/s"],
        "stage-load": ["stage", "layers", "per micro-batch"],
        "schedule-block-forward": ["operator", "runs on", "start"],
        "pipeline": ["stage", "what"],
    }.items():
        place = seen.page.locator(f'[data-figure="{figure}"]')
        place.scroll_into_view_if_needed()
        where = seen.view(figure).evaluate(
            """view => {
                let found = null;
                const walk = (item, x, y) => {
                    if (item.marktype && item.marktype !== "group" && item.role === "mark") {
                        for (const each of item.items) if (each.tooltip) found = [each, x, y];
                    } else for (const each of item.items || [])
                        walk(each, x + (each.marktype ? 0 : each.x || 0), y + (each.marktype ? 0 : each.y || 0));
                };
                walk(view.scenegraph().root, 0, 0);
                const [item, x, y] = found;
                const [left, top] = view.origin();
                return [left + x + (item.bounds.x1 + item.bounds.x2) / 2, top + y + (item.bounds.y1 + item.bounds.y2) / 2];
            }"""
        )
        box = place.locator("svg, canvas").bounding_box()
        seen.page.mouse.move(box["x"] + where[0] - 3, box["y"] + where[1])
        seen.page.mouse.move(box["x"] + where[0], box["y"] + where[1])
        tooltip = seen.page.locator("#vg-tooltip-element.visible")
        tooltip.wait_for(timeout=5_000)
        text = tooltip.inner_text()
        assert all(word in text for word in words), (figure, text)
        seen.page.mouse.move(1, 1)


def test_the_keyboard_reaches_filters_links_and_tables(report: Path, opened: Open) -> None:
    seen = opened(report, "laptop", "dark")
    seen.wait_for("dark")
    seen.page.keyboard.press("Tab")
    assert seen.page.evaluate("document.activeElement.textContent") == "To the content"
    menu = seen.page.get_by_role("combobox", name="micro-batch")
    menu.focus()
    assert seen.page.evaluate("document.activeElement.tagName") == "SELECT"
    seen.page.keyboard.press("ArrowDown")
    seen.view("throughput-area-energy").evaluate("view => view.runAsync().then(() => null)")
    assert seen.signal("throughput-area-energy", "choose_micro_batch") == 1
    seen.page.keyboard.press("Tab")
    assert seen.page.evaluate("document.activeElement.matches('input, select')")
    summary = seen.page.locator("main summary").first
    summary.focus()
    seen.page.keyboard.press("Enter")
    assert seen.page.locator("main details").first.get_attribute("open") is not None
    assert seen.page.locator("main details").first.locator("table").is_visible()


COLUMN = (
    "(table, place) => [...table.tBodies[0].rows].map(row => row.cells[place].textContent.trim())"
)
SORTABLE = """<main><table class="sorts"><thead><tr><th>what</th><th>takes</th><th>size</th></tr></thead>
<tbody><tr><th>b2</th><td>97.88 ms</td><td>1,024</td></tr><tr><th>b10</th><td>1.2 s</td><td></td></tr>
<tr><th>a</th><td>12 µs</td><td>9.5 (3%)</td></tr><tr><th>c</th><td>-</td><td>-2</td></tr></tbody>
<tfoot><tr><th>all</th><td>2 s</td><td>1</td></tr></tfoot></table><details><summary>s</summary><p>folded</p></details></main>"""


@pytest.mark.thorough
def test_tables_sort_by_mouse_and_keyboard_and_tell_so(report: Path, opened: Open) -> None:
    seen = opened(report, "laptop", "light")
    seen.page.locator("summary", has_text="Pareto front").click()
    table = seen.page.locator("details[open] table", has_text="J/sample").first
    given = table.evaluate(COLUMN, 6)
    areas = [float(each.replace(",", "")) for each in given]
    assert len(set(areas)) > 3
    head = table.locator("th", has_text="area")
    assert head.get_attribute("aria-sort") is None
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert [float(each.replace(",", "")) for each in table.evaluate(COLUMN, 6)] == sorted(areas)
    seen.page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert [float(each.replace(",", "")) for each in table.evaluate(COLUMN, 6)] == sorted(
        areas, reverse=True
    )
    seen.page.keyboard.press("Space")
    assert head.get_attribute("aria-sort") is None
    assert table.evaluate(COLUMN, 6) == given
    head.get_by_role("button").click()
    seen.page.keyboard.press("Tab")
    seen.page.keyboard.press("Enter")
    assert table.locator("th[aria-sort]").all_inner_texts() == ["J/sample"]


@pytest.mark.thorough
def test_units_sort_by_size_names_by_their_numbers_and_empty_cells_last(
    opened: Open, tmp_path: Path
) -> None:
    script = (Path(templates.__file__).parent / "templates" / "tables.js").read_text(
        encoding="utf-8"
    )
    path = tmp_path / "table.html"
    path.write_text(
        f'<!doctype html><meta charset="utf-8">{SORTABLE}<script>{script}</script>',
        encoding="utf-8",
    )
    seen = opened(path, "laptop", "light")
    table, foot = seen.page.locator("table"), seen.page.locator("tfoot")
    orders = {
        "what": (["a", "b2", "b10", "c"], ["c", "b10", "b2", "a"]),
        "takes": (["a", "b2", "b10", "c"], ["b10", "b2", "a", "c"]),
        "size": (["c", "a", "b2", "b10"], ["b2", "a", "c", "b10"]),
    }
    for name, directions in orders.items():
        for expected in directions:
            seen.page.get_by_role("button", name=name).click()
            assert table.evaluate(COLUMN, 0) == expected, name
            assert foot.inner_text().split() == ["all", "2", "s", "1"]


@pytest.mark.thorough
def test_folded_tables_are_printed_and_folded_again(report: Path, opened: Open) -> None:
    seen = opened(report, "laptop", "light")
    seen.wait_for("light")
    folded = seen.page.locator("details:not([open])")
    before = folded.count()
    assert before > 5
    seen.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert folded.count() == 0
    seen.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert folded.count() == before
    seen.page.evaluate(
        "addEventListener('beforeprint', () => { window.printed = "
        "document.querySelectorAll('details:not([open])').length; })"
    )
    assert seen.page.pdf().startswith(b"%PDF")
    assert seen.page.evaluate("window.printed") == 0
    assert folded.count() == before


def test_without_scripts_folded_tables_are_on_paper_too(report: Path, browser: Any) -> None:
    context = browser.new_context(viewport=SIZES["laptop"], java_script_enabled=False)
    shown = context.new_page()
    shown.goto(report.as_uri())
    tables = shown.locator("main details table")
    assert not tables.first.is_visible()
    assert shown.locator("thead button").count() == 0
    shown.emulate_media(media="print")
    assert all(each.is_visible() for each in tables.all())
    context.close()


@pytest.mark.thorough
def test_other_pages_are_drawn_too(
    finished: FinishedRun,
    finished_pair: FinishedRun,
    finished_plans: FinishedRun,
    nothing_fits: FinishedRun,
    swept_plans: Sweep,
    swept_chips: Sweep,
    opened: Open,
    tmp_path: Path,
) -> None:
    pages = {
        "points on devices": points_report(read_points([swept_plans.folder])),
        "points of chips": points_report(read_points([swept_chips.folder])),
        "pair": search_report(finished_pair),
        "plans": search_report(finished_plans),
        "comparison": comparison_report(
            finished, finished_pair, compare_runs(finished, finished_pair)
        ),
        "nothing": search_report(nothing_fits),
    }
    for name, report in pages.items():
        path = tmp_path / f"{name}.html"
        path.write_text(page_of(report), encoding="utf-8")
        seen = opened(path, "phone", "dark")
        if report.figures:
            seen.wait_for("dark")
        charts = seen.page.evaluate(DRAWN)
        assert len(charts) == len(report.figures)
        assert all(chart["shapes"] >= 1 or chart["inked"] > 5 for chart in charts), name
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= SIZES["phone"]["width"]
        assert seen.page.evaluate(FAINT_TEXTS) == []
