"""The report as a browser shows it: headless Chromium where there is one, and the links of a page without it."""

import html
import json
import re
import shutil
import subprocess
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
