"""The report as a browser shows it: headless Chromium where there is one, and the links of a page without it."""

import html
import json
import re
import shutil
import subprocess

from bs4 import BeautifulSoup

chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PHONE, DESK = 390, 1280
OPERABLE = "a[href], button, summary, input, select, textarea, [tabindex], .scrolls, .wide"
# a page of some width, of which its frame asks something; the page's own policy lets no script of ours into it
PROBE = """<!doctype html><meta charset="utf-8"><iframe width="{width}" height="900" srcdoc="{page}" onload="{ask}">"""
ASK = "const {{document: page, performance, getComputedStyle}} = this.contentWindow; "
ASK += "document.title = JSON.stringify((document => {expression})(page))"


def check_links(page):
    """Every link leads to something on the page, every name is there once, and nothing is loaded from elsewhere. How
    many links there are."""
    soup = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
    names, links = ([one[kind] for one in soup.find_all(**{kind: True})] for kind in ("id", "href"))
    assert len(names) == len(set(names)) and {link.removeprefix("#") for link in links} <= {*names}
    assert all(one["src"].startswith("data:image/png;base64,") for one in soup.find_all(src=True))
    return len(links)


def browse(url, *options):
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]
    return subprocess.run([*command, *options, url], capture_output=True, text=True, errors="replace", timeout=120)


def measured(path, expression, width=PHONE, dark=False):
    """What an expression says of a page that is `width` pixels wide, and that a browser shows in light or dark."""
    probe, ask = path.with_name("probe.html"), html.escape(ASK.format(expression=expression))
    page = html.escape(path.read_text(encoding="utf-8"))
    probe.write_text(PROBE.format(width=width, page=page, ask=ask), encoding="utf-8")
    done = browse(probe.as_uri(), f"--blink-settings=preferredColorScheme={int(not dark)}", "--window-size=1400,1000")
    return json.loads(html.unescape(re.search(r"(?s)<title>(.*?)</title>", done.stdout)[1]))


def check_in_browser(path, anchor):
    """Nothing is loaded and no error is on the console; a link to a number unfolds the list that holds it; the page
    never scrolls sideways; the tab key reaches everything that can be operated, which is drawn as such; and there is a
    dark page, too."""
    done = browse(f"{path.as_uri()}#{anchor}", "--proxy-server=127.0.0.1:9")  # where nothing answers
    assert "CONSOLE" not in done.stderr and 'class="ran"' not in done.stdout, done.stderr
    before = done.stdout[: done.stdout.index(f'id="{anchor}"')]
    assert re.findall(r"<details[^>]*>|</details>", before)[-1] == '<details open="">'
    assert not measured(path, "performance.getEntriesByType('resource').length")
    for width in (PHONE, DESK):
        assert measured(path, "document.documentElement.scrollWidth - document.documentElement.clientWidth", width) <= 0
    there = f"[...document.querySelectorAll('{OPERABLE}')].filter(one => one.checkVisibility())"
    assert measured(path, f"{there}.length", DESK)
    unseen = "{ one.focus(); return document.activeElement !== one || getComputedStyle(one).outlineStyle === 'none' }"
    for wrong in ("one.tabIndex < 0", unseen):
        assert measured(path, f"{there}.filter(one => {wrong}).map(one => one.outerHTML.slice(0, 80))", DESK) == []
    ground = "getComputedStyle(document.body).backgroundColor"
    assert measured(path, ground) == "rgb(255, 255, 255)" != measured(path, ground, dark=True)
