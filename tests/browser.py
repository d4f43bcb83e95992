"""The report as a browser shows it: headless Chromium where there is one, and the links of a page
without it."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

from bs4 import BeautifulSoup

chromium = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


def check_links(page):
    """Every link leads to something on the page, every name is there once, and nothing is loaded
    from elsewhere. How many links there are."""
    soup = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
    names = [element["id"] for element in soup.find_all(id=True)]
    links = [element["href"] for element in soup.find_all(href=True)]
    assert len(names) == len(set(names))
    assert {link.removeprefix("#") for link in links} <= set(names)
    for element in soup.find_all(src=True):
        assert element["src"].startswith("data:image/png;base64,")
    return len(links)


def browse(url, *options):
    command = [
        chromium,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--dump-dom",
    ]
    return subprocess.run(
        [*command, *options, url], capture_output=True, text=True, errors="replace", timeout=120
    )


def probe(path, name, *options, **filled):
    """What a probe, a page beside this file, tells of a page that it holds in a frame."""
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    for word, value in filled.items():
        text = text.replace(word, value)
    page = html.escape(path.read_text(encoding="utf-8"))
    beside = path.with_name(name)
    beside.write_text(text.replace('"PAGE"', f'"{page}"'), encoding="utf-8")
    done = browse(beside.as_uri(), *options)
    return json.loads(html.unescape(re.search(r"(?s)<title>(.*?)</title>", done.stdout)[1]))


def measure_page(path, width, dark):
    """What probe.html measures of a page that is `width` pixels wide, and that a browser shows in
    light or dark."""
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    return probe(path, "probe.html", scheme, "--window-size=1400,1000", WIDTH=width)


def look_at_explorer(path):
    """What probe_explorer.html sees in the interactive part of a page."""
    return probe(path, "probe_explorer.html", "--window-size=1400,1000")


def check_in_browser(path, anchor):
    """Nothing is loaded and no error is on the console; a link to a number unfolds the list that
    holds it; the page never scrolls sideways; the tab key reaches everything that can be operated,
    which is drawn as such; and there is a dark page, too."""
    # where nothing answers
    done = browse(f"{path.as_uri()}#{anchor}", "--proxy-server=127.0.0.1:9")
    assert "CONSOLE" not in done.stderr and 'class="ran"' not in done.stdout, done.stderr
    before = done.stdout[: done.stdout.index(f'id="{anchor}"')]
    assert re.findall(r"<details[^>]*>|</details>", before)[-1] == '<details open="">'
    for width, dark in (("390", False), ("1280", False), ("1280", True)):
        measures = measure_page(path, width, dark)
        is_white = measures.pop("ground") == "rgb(255, 255, 255)"
        assert measures.pop("operable") > 0
        assert is_white != dark
        assert measures == {
            "loaded": 0,
            "sideways": 0,
            "unreached": [],
            "undrawn": [],
            "unboxed": 0,
        }
