"""A real report in headless Chromium: it loads cleanly, sorts, and fits a phone and the dark."""

import os
import shutil
from pathlib import Path

import pytest
import torch

import bnaf
from bnaf.report import assess, write_report
from bnaf.tables.table import Table

pytestmark = pytest.mark.browser

PHONE, DESK = {"width": 360, "height": 740}, {"width": 1200, "height": 900}
NAMES = ("price", "<b>size</b>", "a_column_with_a_name_that_is_longer_than_any_screen_" * 4)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Write the report of a small fit, one of its columns with a name that is far too long."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(300, 3, generator=generator, dtype=torch.float64)
    rows[:, 2] = rows[:, 2].exp() * rows[:, 0]
    table = Table(rows, NAMES)
    settings = bnaf.TrainingSettings(steps=30)
    model = bnaf.Model.fit(table, valid=0.2, test=0.2, settings=settings, progress=False)
    path = tmp_path_factory.mktemp("browser") / "report.html"
    write_report(assess(model, table), path, table_name="homes.csv")
    return path


@pytest.fixture(scope="module")
def chromium():
    """Start Debian's Chromium; without it, or without Playwright, these tests are skipped."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed: make test-browser installs it"
    )
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("there is no chromium in PATH: apt install chromium")
    sandbox = [] if os.geteuid() else ["--no-sandbox"]  # root has none
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=sandbox)
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium, report):
    """Open the report; whatever the browser complains of is noted."""
    contexts, complaints, requests = [], [], []

    def open_page(viewport=DESK, scheme="light", **settings):
        context = chromium.new_context(viewport=viewport, color_scheme=scheme, **settings)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(report.as_uri())
        page.complaints, page.requests = complaints, requests
        return page

    yield open_page
    for context in contexts:
        context.close()


def ink_of(page, image):
    """Return the mean lightness of what an image draws over its ground, between 0 and 255."""
    return page.evaluate(
        """async (image) => {
            await image.decode();
            const canvas = document.createElement("canvas");
            [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
            const pen = canvas.getContext("2d");
            pen.drawImage(image, 0, 0);
            const pixels = pen.getImageData(0, 0, canvas.width, canvas.height).data;
            let [sum, weight, drawn] = [0, 0, 0];
            for (let i = 0; i < pixels.length; i += 4) {
                const alpha = pixels[i + 3] / 255;
                sum += alpha * (pixels[i] + pixels[i + 1] + pixels[i + 2]) / 3;
                weight += alpha;
                drawn += alpha > 0.5;
            }
            return { lightness: sum / weight, share: drawn / (pixels.length / 4) };
        }""",
        image,
    )


def lightness(colour):
    channels = colour.removeprefix("rgb(").removesuffix(")").split(",")
    return sum(map(float, channels)) / 3


def column(page, table, index):
    return page.locator(f"{table} tbody tr td:nth-child({index})").all_inner_texts()


def sort_by(page, table, name):
    page.locator(f"{table} th button", has_text=name).click()


def test_the_page_loads_without_complaints_and_without_network(opened):
    page = opened()
    assert page.title() == "Density of homes.csv"
    page.wait_for_load_state("networkidle")
    assert page.complaints == []
    assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figures_are_visible(opened, scheme):
    page = opened(scheme=scheme)
    images = page.locator("figure img")
    assert images.count() == 5
    for index in range(images.count()):
        image = images.nth(index)
        image.scroll_into_view_if_needed()
        assert image.is_visible()
        assert image.evaluate("image => image.complete && image.naturalWidth > 100")
        assert ink_of(page, image.element_handle())["share"] > 0.005


def test_dark_mode_turns_paper_and_ink_of_page_and_figures(opened):
    found = {}
    for scheme in ("light", "dark"):
        page = opened(scheme=scheme)
        style = page.evaluate(
            "() => { const style = getComputedStyle(document.body); "
            "return [style.backgroundColor, style.color] }"
        )
        axes = page.locator("#calibration figure img").last.element_handle()
        found[scheme] = [*map(lightness, style), ink_of(page, axes)["lightness"]]
    (light_paper, light_ink, light_axes), (dark_paper, dark_ink, dark_axes) = found.values()
    assert light_paper > 240 > 100 > light_ink
    assert dark_paper < 40 < 180 < dark_ink
    assert dark_axes > light_axes + 40


@pytest.mark.parametrize("viewport", [PHONE, {"width": 320, "height": 568}, DESK])
def test_the_page_does_not_scroll_sideways(opened, viewport):
    page = opened(viewport)
    page.locator("details summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    widest = page.evaluate(
        "Math.max(...[...document.querySelectorAll('h1, h2, p, li, figure, img, pre, nav')]"
        ".map(element => element.getBoundingClientRect().right))"
    )
    assert widest <= viewport["width"]


def test_numbers_sort_as_numbers_both_ways(opened):
    page = opened()
    sort_by(page, "#least table", "log-density")
    texts = column(page, "#least table", 3)
    values = [float(text.replace("−", "-")) for text in texts]
    assert len(values) == 10
    assert values == sorted(values)
    sort_by(page, "#least table", "log-density")
    assert column(page, "#least table", 3) == texts[::-1]
    sort_by(page, "#least table", "row")
    numbers = [int(text) for text in column(page, "#least table", 1)]
    assert numbers == sorted(numbers)


def test_text_sorts_as_text(opened):
    page = opened()
    sort_by(page, "#calibration table", "what")
    names = column(page, "#calibration table", 1)
    assert names[:3] == ["<b>size</b>", names[1], "distance"]
    assert page.locator("#calibration th[aria-sort=ascending]").inner_text().startswith("what")


def test_sorting_works_by_keyboard_and_is_announced(opened):
    page = opened()
    page.locator("#standing th button", has_text="number").focus()
    page.keyboard.press("Enter")
    assert column(page, "#standing table", 2) == ["60", "60", "180"]
    page.keyboard.press("Space")
    assert column(page, "#standing table", 2) == ["180", "60", "60"]
    assert page.locator("[role=status]").inner_text() == "Sorted by number, falling."


def test_the_page_reads_without_javascript(opened):
    page = opened(java_script_enabled=False)
    assert page.locator("th button").count() == 0
    assert column(page, "#standing table", 1) == ["training", "validation", "test"]
    assert page.locator("figure img").first.is_visible()


def test_screenshots_for_those_who_look(opened, tmp_path):
    folder = Path(os.environ.get("BNAF_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    for name, viewport, scheme in (("desk", DESK, "light"), ("phone", PHONE, "dark")):
        page = opened(viewport, scheme)
        shot = folder / f"{name}.png"
        page.screenshot(path=shot, full_page=True)
        assert shot.stat().st_size > 20_000
