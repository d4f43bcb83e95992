"""Formats of a table's numbers; `one` is a row of `Layout.place`."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from lib.paper.booktabs import Cell
from lib.paper.footnotes import MIN_BIN_COUNT
from lib.paper.latex import COMMANDS, escape

Show = Callable[[float], str]
DASH = Cell("--", html="&ndash;")
THREE_DECIMALS: Show = "{:.3f}".format


def format_3dp(value: float) -> str:
    """Return three decimals without a leading zero: .053, -.209, 1.000."""
    return f"{value:z.3f}".replace("0.", ".", 1) if abs(value) < 0.9995 else f"{value:z.3f}"


def format_relative(one: Any) -> str:
    """Return the relative improvement in whole percent: +66%; empty if missing."""
    return "" if pd.isna(one.relative) else f"{round(100 * one.relative):+d}%"


def number_cell(one: Any, show: Show = THREE_DECIMALS) -> Cell:
    """Return the number, with a star on screen if it comes from a bin of few rows."""
    if np.isnan(one.value):
        return DASH
    text = show(one.value)
    mark = f"{text}<sup>*</sup>" if one.of_bin < MIN_BIN_COUNT else None
    return Cell(text, html=mark, bold=one.bold, key=one.key)


def improvement_cell(one: Any) -> Cell:
    """Return value and relative improvement: 0.056 (+66%)."""
    cell, gain = number_cell(one), format_relative(one)
    return replace(cell, text=f"{cell.text} ({gain})") if gain and cell is not DASH else cell


def interval_cell(one: Any, commands: tuple[str, str], show: Show = THREE_DECIMALS) -> Cell:
    """Return value, interval and, if the commands take it, relative improvement, with the command for plain or bold."""
    cell = number_cell(one, show)
    if cell is DASH or np.isnan(one.low) or np.isnan(one.high):
        return cell
    parts = [cell.text, show(one.low), show(one.high)]
    text = "{} [{}, {}]".format(*parts)
    if COMMANDS[commands[0]][0] == 4:
        parts.append(format_relative(one) or "--")
        text += f" ({parts[-1]})"
    latex = commands[one.bold] + "".join(f"{{{escape(part)}}}" for part in parts)
    return replace(cell, latex=latex, html=f"<b>{text}</b>" if one.bold else text, bold=False)
