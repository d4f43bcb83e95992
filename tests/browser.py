"""The report as a browser shows it: headless Chromium where there is one, and the links of a page without it."""

import html
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


def measured(path, asked, width=PHONE, dark=False):
    """What an expression says of a page (`page`, its document) that is `width` pixels wide, and that a browser shows in
    light or dark; asked from outside, since the page's policy lets no other script in."""
    probe = path.with_name("probe.html")
    frame = f'<iframe src="{path.name}" style="width:{width}px;height:900px;border:0"></iframe>'
    script = f"onload = () => {{ const page = frames[0].document; document.title = JSON.stringify({asked}) }}"
    options = ["--allow-file-access-from-files", "--window-size=1600,1000"]
    options.append(f"--blink-settings=preferredColorScheme={0 if dark else 1}")
    try:
        probe.write_text(f"<title></title>{frame}<script>{script}</script>")
        shown = _browse(probe.as_uri(), "--dump-dom", *options)
    finally:
        probe.unlink(missing_ok=True)
    return json.loads(html.unescape(re.search(r"<title>(.*?)</title>", shown.stdout)[1]))


def check_width(path):
    """At the width of a phone and of a desk the page itself never scrolls sideways."""
    for width in (PHONE, DESK):
        wide, inner = measured(path, "[page.documentElement.scrollWidth, frames[0].innerWidth]", width)
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


@contextmanager
def opened(path):
    """A page in a browser that is told what to do over two pipes (the DevTools protocol), as a function: method and
    parameters to result."""
    (theirs, to), (back, ours) = os.pipe(), os.pipe()
    command = f"exec {chromium} --headless --no-sandbox --disable-gpu --remote-debugging-pipe 3<&{theirs} 4>&{ours}"
    process = subprocess.Popen(["bash", "-c", command], pass_fds=(theirs, ours), stderr=subprocess.DEVNULL)
    os.close(theirs), os.close(ours)
    answers, number, session = os.fdopen(back, "rb"), 0, {}

    def answer():
        said = b""
        while not said.endswith(b"\0"):
            one = answers.read(1)
            assert one, "the browser ended"
            said += one
        return json.loads(said[:-1])

    def call(method, **parameters):
        nonlocal number
        number += 1
        os.write(to, json.dumps({"id": number, "method": method, "params": parameters} | session).encode() + b"\0")
        return next(found for found in iter(answer, None) if found.get("id") == number)["result"]

    try:
        (page,) = (one for one in call("Target.getTargets")["targetInfos"] if one["type"] == "page")
        session = {"sessionId": call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]}
        call("Page.navigate", url=path.as_uri())
        yield call
    finally:
        process.kill()
        process.wait()
        answers.close(), os.close(to)


def check_keyboard(path):
    """The tab key alone reaches everything that can be operated on a page, comes back to its beginning, and what it
    stops at is drawn as such."""
    with opened(path) as call:

        def asked(expression):
            return call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

        ends = time.monotonic() + 20
        while not (asked("document.readyState") == "complete" and asked("location.protocol") == "file:"):
            assert time.monotonic() < ends, path
        asked(LISTEN)
        operable = asked(f"{OPERABLE}.length")
        assert operable, path
        for _ in range(2 * operable + 20):  # a browser adds stops of its own: what scrolls
            for kind in ("keyDown", "keyUp"):
                call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
            if asked("document.activeElement === document.body"):
                break
        else:
            raise AssertionError(f"the keyboard is caught in {asked('document.activeElement.outerHTML')}")
        assert asked(f"{OPERABLE}.filter(one => !reached.has(one)){NAMES}") == []
        assert asked(f"""[...reached].filter(one => {{
            one.focus()
            return getComputedStyle(one).outlineStyle === 'none'
        }}){NAMES}""") == []
