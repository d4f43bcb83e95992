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
    names, links = ([one[kind] for one in soup.find_all(**{kind: True})] for kind in ("id", "href"))
    assert len(names) == len(set(names)) and {link.removeprefix("#") for link in links} <= {*names}
    assert all(one["src"].startswith("data:image/png;base64,") for one in soup.find_all(src=True))
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


def measured(path, width, dark):
    """What probe.html measures of a page that is `width` pixels wide, and that a browser shows in
    light or dark."""
    probe, page = (
        Path(__file__).with_name("probe.html").read_text(encoding="utf-8"),
        path.read_text(encoding="utf-8"),
    )
    asking = path.with_name("probe.html")
    asking.write_text(
        probe.replace("WIDTH", width).replace('"PAGE"', f'"{html.escape(page)}"'), encoding="utf-8"
    )
    done = browse(
        asking.as_uri(),
        f"--blink-settings=preferredColorScheme={int(not dark)}",
        "--window-size=1400,1000",
    )
    return json.loads(html.unescape(re.search(r"(?s)<title>(.*?)</title>", done.stdout)[1]))


def check_in_browser(path, anchor):
    """Nothing is loaded and no error is on the console; a link to a number unfolds the list that
    holds it; the page never scrolls sideways; the tab key reaches everything that can be operated,
    which is drawn as such; and there is a dark page, too."""
    # where nothing answers
    done = browse(f"{path.as_uri()}#{anchor}", "--proxy-server=127.0.0.1:9")
    assert "CONSOLE" not in done.stderr and 'class="ran"' not in done.stdout, done.stderr
    before = done.stdout[: done.stdout.index(f'id="{anchor}"')]
    assert re.findall(r"<details[^>]*>|</details>", before)[-1] == '<details open="">'
    phone, desk, dark = (
        measured(path, *how) for how in (("390", False), ("1280", False), ("1280", True))
    )
    for found in (phone, desk, dark):
        assert found.pop("operable") > 0 and (found.pop("ground") == "rgb(255, 255, 255)") == (
            found is not dark
        )
        assert found == {"loaded": 0, "sideways": 0, "unreached": [], "undrawn": [], "unboxed": 0}
