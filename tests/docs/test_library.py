"""The library by itself: a wheel of `lib` with its data, which works without project and torch."""

import importlib.metadata
import json
import math
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from clone import ENV
from packaging.requirements import Requirement

from lib.paths import ROOT
from workflow.environment import read_pins

PINS = read_pins(ROOT, False)
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
HIDE = """
import importlib, sys
class Absent:
    def find_spec(name, path=None, target=None):
        if name in {names}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent)
"""  # packages, as if they were not installed
ALONE = {name: value for name, value in ENV.items() if name != "PYTHONPATH"}
PAGES = ("docs/code-map.md", "docs/extending.md")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy: setuptools writes beside what it reads."""
    source = tmp_path_factory.mktemp("source")
    to = tmp_path_factory.mktemp("wheel")
    shutil.copy(ROOT / "pyproject.toml", source)
    for folder in ("lib", "workflow", "demo"):
        shutil.copytree(ROOT / folder, source / folder)
    subprocess.check_output([sys.executable, "-c", BUILD, to], cwd=source, env=ALONE)
    (built,) = to.iterdir()
    return built


@pytest.fixture
def distribution(wheel, tmp_path) -> importlib.metadata.Distribution:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    (installed,) = importlib.metadata.distributions(path=[str(tmp_path)])
    return installed


def test_the_wheel_holds_lib_with_its_data_and_nothing_else(distribution):
    paths = [path.relative_to(ROOT) for path in (ROOT / "lib").rglob("*") if path.is_file()]
    wanted = {str(path) for path in paths if "__pycache__" not in path.parts}
    held = {str(path) for path in distribution.files if ".dist-info/" not in str(path)}
    assert held == wanted
    assert {"lib/stored_columns.yaml", "lib/paper/listing.tex"} < held
    assert len([name for name in held if name.startswith("lib/calibrate/shipped/")]) == 12


def test_the_wheel_asks_for_ranges_and_its_extra_for_the_versions_of_the_results(distribution):
    requirements = [Requirement(line) for line in distribution.requires]
    core = [requirement for requirement in requirements if not requirement.marker]
    names = {requirement.name for requirement in core}
    assert names == {"numpy", "scipy", "pandas", "scikit-learn", "pyarrow", "pydantic", "pyyaml"}
    for requirement in core:
        assert "==" not in str(requirement.specifier)
        assert requirement.specifier.contains(PINS[requirement.name])
    others = [requirement for requirement in requirements if requirement.marker]
    run = [other for other in others if other.marker.evaluate({"extra": "run"})]
    assert {other.name: str(other.specifier) for other in run} == {
        name: f"=={version}" for name, version in PINS.items()
    }


def test_what_scores_and_calibrates_imports_only_what_the_wheel_asks_for(distribution):
    core = {Requirement(line).name for line in distribution.requires if "extra" not in line}
    lines = [HIDE.format(names=PINS.keys() - core)]
    for room in ("score", "calibrate", "analysis"):
        modules = [path.stem for path in (ROOT / "lib" / room).glob("*.py")]
        lines += [f"importlib.import_module('lib.{room}.{module}')" for module in modules]
    assert len(lines) > 10
    subprocess.check_call([sys.executable, "-c", "\n".join(lines)], cwd=ROOT, env=ALONE)


# ---- installed

MESSAGE = {"role": "assistant", "content": "#### 8"}
TOKENS = [{"token": "#### ", "logprob": -0.1}, {"token": "8", "logprob": -0.2}]
CHOICE = {"index": 0, "message": MESSAGE, "logprobs": {"content": TOKENS}, "finish_reason": "stop"}
CALIBRATOR = "qwen2.5-coder-1.5b__gsm8k__ans_avg__isotonic"
SCORE = f"""
from lib.calibrate.one_response import score
print(score({json.dumps({"choices": [CHOICE]})!r}, "{CALIBRATOR}").raw)
"""
# what reads or writes artifacts/ or params/
OF_PROJECT = [
    "from lib.params import load_profile; load_profile('demo')",
    "from lib.params import load_model_config; load_model_config('tiny-llama')",
    "from lib.parameter_schemas import Model; "
    "Model(label='M', source='a/b', gguf='m.gguf', sha256='0' * 64).place",
    "from lib.paper.numbers_of_paper import published; published()",
    "from lib.paper.numbers_of_paper import paper_facts; paper_facts()",
    "from lib.store import load_frames; load_frames('shipped', 'generations', ['a'], ['b'])",
    "from lib.store import frame_path; frame_path('mine', 'confidence', 'single_pass')",
    "from lib.row_cache import RowCache; RowCache('mine', 'generations', 'a__b', {})",
]


def run(python: Path, lines: str, folder: Path) -> subprocess.CompletedProcess:
    command = [python, "-c", lines]
    return subprocess.run(command, cwd=folder, env=ALONE, capture_output=True, text=True)


def files_below(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if "__pycache__" not in path.parts}


@pytest.mark.slow
def test_an_installed_library_runs_the_lines_of_the_pages_and_needs_no_project(wheel, tmp_path):
    """pip installs it into an empty environment, with what it asks for in the pinned versions."""
    python = tmp_path / "venv" / "bin" / "python"
    pins = tmp_path / "pins.txt"
    with pins.open("w") as file:
        for name, version in PINS.items():
            print(f"{name}=={version}", file=file)
    subprocess.check_call([sys.executable, "-m", "venv", tmp_path / "venv"], env=ALONE)
    install = [python, "-I", "-m", "pip", "install", "--quiet", "--constraint", pins, wheel]
    subprocess.check_call(install, env=ALONE)
    assert "No module named 'torch'" in run(python, "import torch", tmp_path).stderr
    for page in PAGES:
        text = (ROOT / page).read_text("utf-8")
        blocks = re.findall(r"```python\n(.*?)```", text, flags=re.S)
        (lines,) = (block for block in blocks if "artifacts/" not in block)  # others read a run
        done = run(python, lines, tmp_path)
        written = re.findall(r"^print.*  # (.*)$", lines, flags=re.M)
        assert done.stdout.splitlines() == written, done
    raw = float(run(python, SCORE, tmp_path).stdout)
    assert raw == pytest.approx(math.exp(-0.2))
    before = files_below(tmp_path)
    refusal = "lib.errors.UserError: artifacts/ and params/ are folders of "
    for lines in OF_PROJECT:
        last = run(python, lines, tmp_path).stderr.splitlines()[-1]
        assert last.startswith(refusal), lines
    assert files_below(tmp_path) == before
