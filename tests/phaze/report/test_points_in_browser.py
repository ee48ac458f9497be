"""The page of many points in a real browser: its menus, its table, and beside a server its
clicks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from phaze.report.pages.page import page as page_of
from phaze.report.pages.points.points_report import points_report
from phaze.report.pages.points.side_by_side import side_by_side, side_by_side_section
from phaze.studies.sweep.axes import Sweep
from phaze.studies.sweep.other_answers import OtherAnswer
from phaze.studies.sweep.points_read import read_points
from tests.phaze.report.test_report_in_browser import (
    DRAWN,
    FAINT_TEXTS,
    SIZES,
    Open,
    browser,
    opened,
)

pytestmark = pytest.mark.browser
__all__ = ["browser", "opened"]  # fixtures that this file shares
TEXTS = """view => {
    const found = [];
    const walk = item => {
        if (item.marktype === "text" && item.role === "mark") found.push(...item.items.map(each => each.text));
        (item.items || []).forEach(walk);
    };
    walk(view.scenegraph().root);
    return found;
}"""


def test_menus_choose_the_axes_and_the_value_of_the_heat_map(
    swept_plans: Sweep, opened: Open, tmp_path: Any
) -> None:
    path = tmp_path / "points.html"
    path.write_text(page_of(points_report(read_points([swept_plans.folder]))), encoding="utf-8")
    seen = opened(path, "laptop", "light")
    seen.wait_for("light")
    axes, value = (
        seen.page.get_by_role("combobox", name=name, exact=True) for name in ("axes", "value")
    )
    axes.select_option(label="devices across, memory, GiB up")
    value.select_option(label="memory in use")
    seen.view("heat-map").evaluate("view => view.runAsync().then(() => null)")
    written = seen.view("heat-map").evaluate(TEXTS)
    assert len(written) == 6 and written.count("×") == 3
    assert all(text.endswith("%") for text in written if text != "×")
    assert seen.page.locator("text=memory in use: devices across, memory, GiB up").count() == 1
    seen.page.emulate_media(color_scheme="dark")
    seen.wait_for("dark")
    assert seen.view("heat-map").evaluate(TEXTS) == written


@pytest.mark.some(1)
@pytest.mark.parametrize("size", SIZES)
def test_answers_of_others_are_drawn_beside_the_curves(
    swept_plans: Sweep, opened: Open, size: str, tmp_path: Any
) -> None:
    points = read_points([swept_plans.folder])
    answers = [
        OtherAnswer("a tool of others, as published", devices, 1 / devices, {"tp": "1"})
        for devices in (1, 2, 4, 64)
    ]
    found = side_by_side(points, answers, "others.csv")
    path = tmp_path / "points.html"
    path.write_text(
        page_of(points_report(points, beside=[side_by_side_section(found, "others.csv")])),
        encoding="utf-8",
    )
    seen = opened(path, size, "dark")
    seen.wait_for("dark")
    for place, each in enumerate(found, start=1):
        assert seen.marks(f"beside-{place}") == sum(len(times) for _, times in each.sources)
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"]
    assert seen.page.evaluate(FAINT_TEXTS) == []


@pytest.fixture(scope="module")
def address(swept_plans: Sweep) -> Iterator[str]:
    """A server of the sweep within this process."""
    uvicorn = pytest.importorskip(
        "uvicorn", reason="uvicorn is not installed (pip install 'phaze[serve]')"
    )
    pytest.importorskip(
        "starlette", reason="starlette is not installed (pip install 'phaze[serve]')"
    )
    from phaze.cli.serve import _listen
    from phaze.report.serve.answers import Answers
    from phaze.report.serve.app import application

    listening = _listen("127.0.0.1", 0)
    app = application(Answers(read_points([swept_plans.folder]), alone=False), "token")
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/token/"
    server.should_exit = True
    thread.join()
    listening.close()


@pytest.mark.some(1)
@pytest.mark.parametrize("size", SIZES)
def test_a_click_on_a_point_shows_its_plan_and_asks_what_another_costs(
    browser: Any, address: str, swept_plans: Sweep, size: str
) -> None:
    context = browser.new_context(
        viewport=SIZES[size], color_scheme="light", has_touch=size == "phone"
    )
    shown, said = context.new_page(), []
    shown.on("console", lambda message: said.append(message.text))
    shown.on("pageerror", lambda error: said.append(str(error)))
    shown.goto(address)
    shown.wait_for_selector("html[data-drawn=light]", state="attached", timeout=30_000)
    charts = shown.evaluate(DRAWN)
    assert all(chart["shapes"] >= 1 or chart["inked"] > 5 for chart in charts)
    feasible = next(point for point in read_points([swept_plans.folder]).points if point.feasible)
    shown.locator(f'a.to-point[href="points/{feasible.number}/"]').click()
    panel = shown.locator("dialog#plan")
    panel.locator("li").first.wait_for()
    (plan,) = feasible.result.plans if feasible.result else ()
    assert f"tp {plan.tp} x pp {plan.pp} x dp {plan.dp}" in panel.inner_text()
    field = shown.get_by_label("What would it cost to have instead")
    field.fill(f"pp={1 if plan.pp > 1 else 2}")
    field.press("Enter")
    shown.wait_for_selector(f'dialog[data-answered="{feasible.number}"]', timeout=60_000)
    assert (
        "below the best design" in panel.inner_text()
        and "iteration" in panel.locator("table").inner_text()
    )
    field.fill("colour=<b>3</b>")
    shown.get_by_role("button", name="Explain").click()
    panel.get_by_text("unknown key 'colour'").wait_for()
    assert said[1:] == [] and all(
        "422" in each for each in said
    )  # what the browser itself says of the refusal
    assert shown.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"]
    assert shown.evaluate(FAINT_TEXTS) == []
    shown.keyboard.press("Escape")
    assert not panel.is_visible()
    bar = shown.locator('[data-figure="iteration-by-point"] .mark-rect path').first
    bar.scroll_into_view_if_needed()
    bar.click(force=True)
    panel.wait_for(state="visible")
    assert panel.locator("h2").inner_text().startswith("Point ")
    context.close()
