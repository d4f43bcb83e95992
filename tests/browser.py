"""The report as a browser shows it: headless Chromium where there is one, and the links of a page without it."""

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from bs4 import BeautifulSoup

chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PHONE, DESK = 390, 1280


def check_links(*pages):
    """Every link leads to something on one of the pages, every name is there once, and nothing is loaded from
    elsewhere. How many links there are."""
    found = {page: BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser") for page in pages}
    names = {page: [one["id"] for one in soup.find_all(id=True)] for page, soup in found.items()}
    links = [(page, one["href"]) for page, soup in found.items() for one in soup.find_all("a", href=True)]
    for page, target in links:
        name, _, anchor = target.partition("#")
        there = names[Path(os.path.normpath(page.parent / name)) if name else page]
        assert not anchor or anchor in there, (page.name, target)
    for page, soup in found.items():
        assert len(names[page]) == len(set(names[page])), page
        assert all(one["src"].startswith("data:image/png;base64,") for one in soup.find_all(src=True)), page
    return len(links)


def _browse(url, *options):
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", *options, url]
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=120)


def measured(path, expression, width=PHONE, dark=False):
    """What an expression says of a page that is `width` pixels wide, and that a browser shows in light or dark."""
    page = Page()
    try:
        page.open(path, width, dark)
        return page.asked(expression)
    finally:
        page.close()


def check_width(path):
    """At the width of a phone and of a desk the page itself never scrolls sideways."""
    for width in (PHONE, DESK):
        wide, inner = measured(path, "[document.documentElement.scrollWidth, innerWidth]", width)
        assert wide <= inner == width, (wide, inner, width)


def check_in_browser(path, anchor=""):
    """Nothing is loaded and no error is on the console; a link to a number unfolds the list that holds it; the page
    never scrolls sideways; the keyboard reaches everything; and there is a dark page, too."""
    done = _browse(f"{path.as_uri()}#{anchor}", "--dump-dom", "--proxy-server=127.0.0.1:9")  # where nothing answers
    assert "CONSOLE" not in done.stderr and 'class="ran"' not in done.stdout, done.stderr
    if anchor:
        before = done.stdout[: done.stdout.index(f'id="{anchor}"')]
        assert re.findall(r"<details[^>]*>|</details>", before)[-1] == '<details open="">'
    assert not measured(path, "performance.getEntriesByType('resource').length")
    check_width(path)
    check_keyboard(path)
    ground = "getComputedStyle(document.body).backgroundColor"
    assert measured(path, ground) == "rgb(255, 255, 255)" != measured(path, ground, dark=True)


def check_keyboard(path):
    """The tab key reaches everything that can be operated on a page, and what it stops at is drawn as such."""
    operable = "a[href], button, summary, input, select, textarea, [tabindex], .scrolls, .wide"
    there = f"[...document.querySelectorAll('{operable}')].filter(one => one.checkVisibility())"
    unseen = "{ one.focus(); return document.activeElement !== one || getComputedStyle(one).outlineStyle === 'none' }"
    assert measured(path, f"{there}.length", DESK)
    names = ".map(one => one.outerHTML.slice(0, 80))"
    assert measured(path, f"{there}.filter(one => one.tabIndex < 0){names}", DESK) == []
    assert measured(path, f"{there}.filter(one => {unseen}){names}", DESK) == []


class Page:
    """A page in a browser that is told what to do over two pipes (the DevTools protocol)."""

    def __init__(self):
        (theirs, self.to), (back, ours) = os.pipe(), os.pipe()
        command = f"exec {chromium} --headless --no-sandbox --disable-gpu --remote-debugging-pipe 3<&{theirs} 4>&{ours}"
        self.browser = subprocess.Popen(["bash", "-c", command], pass_fds=(theirs, ours), stderr=subprocess.DEVNULL)
        os.close(theirs), os.close(ours)
        self.answers, self.number, self.session = os.fdopen(back, "rb"), 0, {}

    def answer(self):
        said = b""
        while not said.endswith(b"\0"):
            one = self.answers.read(1)
            assert one, "the browser ended"
            said += one
        return json.loads(said[:-1])

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters} | self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        return next(found for found in iter(self.answer, None) if found.get("id") == self.number)["result"]

    def asked(self, expression):
        """The value of an expression; the page's policy does not hold for it."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def open(self, path, width, dark):
        (page,) = (one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page")
        session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        self.session = {"sessionId": session}
        shown = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[shown])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)  # else nothing has the focus without a window
        self.call("Page.navigate", url=path.as_uri())
        ends = time.monotonic() + 20
        while self.asked("[document.readyState, location.protocol]") != ["complete", "file:"]:
            assert time.monotonic() < ends, path

    def close(self):
        self.browser.kill()
        self.browser.wait()
        self.answers.close(), os.close(self.to)
