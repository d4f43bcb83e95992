"""The report as a browser shows it: headless Chromium where there is one, and the links of a page without it."""

import json
import os
import re
import shutil
import subprocess
import time
from contextlib import contextmanager
from html.parser import HTMLParser

chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PHONE, DESK = 390, 1280


class _Links(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.targets, self.ids, self.loads = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids += [given["id"]] if "id" in given else []
        self.targets += [given["href"]] if tag == "a" else []
        self.loads += [given["src"]] if "src" in given else []


def check_links(page):
    """Every link leads to something on the page, every name is there once, and nothing is loaded from elsewhere."""
    found = _Links(page)
    assert len(found.targets) > 50 and len(found.ids) == len(set(found.ids))
    assert {target.removeprefix("#") for target in found.targets} <= set(found.ids)
    assert all(source.startswith("data:image/png;base64,") for source in found.loads)


def _browse(url, *options):
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", *options, url]
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=120)


def measured(path, expression, width=PHONE, dark=False):
    """What an expression says of a page that is `width` pixels wide, and that a browser shows in light or dark."""
    with opened(path, width, dark) as page:
        return page.asked(expression)


def check_width(path):
    """At the width of a phone and of a desk the page itself never scrolls sideways."""
    for width in (PHONE, DESK):
        wide, inner = measured(path, "[document.documentElement.scrollWidth, innerWidth]", width)
        assert wide <= inner == width, (wide, inner, width)


def check_in_browser(path, anchor):
    """No error on the console; a link to a number unfolds the list that holds it; and `check_width`."""
    done = _browse(f"{path.as_uri()}#{anchor}", "--dump-dom")
    assert "CONSOLE" not in done.stderr, done.stderr
    before = done.stdout[: done.stdout.index(f'id="{anchor}"')]
    assert re.findall(r"<details[^>]*>|</details>", before)[-1] == '<details open="">'
    check_width(path)


# what can be operated on a page
OPERABLE = """[...document.querySelectorAll('a[href], button, summary, input, select, textarea, [tabindex="0"]')]
    .filter(one => one.checkVisibility())"""
LISTEN = "reached = new Set(); document.addEventListener('focusin', event => reached.add(event.target))"
NAMES = ".map(one => one.outerHTML.slice(0, 80))"


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


@contextmanager
def opened(path, width=DESK, dark=False):
    page = Page()
    try:
        page.open(path, width, dark)
        yield page
    finally:
        page.close()


def check_keyboard(path):
    """The tab key alone reaches everything that can be operated on a page, comes back to its beginning, and what it
    stops at is drawn as such."""
    with opened(path) as page:
        page.asked(f"{LISTEN}; null")
        operable = page.asked(f"{OPERABLE}.length")
        assert operable, path
        for _ in range(2 * operable + 20):  # a browser adds stops of its own: what scrolls
            for kind in ("keyDown", "keyUp"):
                page.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
            if page.asked("document.activeElement === document.body"):
                break
        else:
            raise AssertionError(f"the keyboard is caught in {page.asked('document.activeElement.outerHTML')}")
        assert page.asked(f"{OPERABLE}.filter(one => !reached.has(one)){NAMES}") == []
        assert (
            page.asked(f"""[...reached].filter(one => {{
            one.focus()
            return getComputedStyle(one).outlineStyle === 'none'
        }}){NAMES}""")
            == []
        )
