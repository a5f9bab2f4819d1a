# SPDX-License-Identifier: GPL-2.0
"""Pictures of the ratios, as SVG: a bar for each metric, and the way of each over the runs."""

import math
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, LINE = 900, 330, 70, 20
GOOD, BAD, GREY = "#2a7", "#c53", "#888"
COLOURS = ("#2a7", "#c53", "#36c", "#a3a", "#a80", "#088", "#555", "#e48")


def svg(height, parts):
    """The whole picture."""
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            'font-family="sans-serif" font-size="12">')
    return "\n".join([head, f'<rect width="{WIDTH}" height="{height}" fill="white"/>', *parts, "</svg>\n"])


def text(x, y, words, anchor="start", colour="black"):
    """One line of text."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(words)}</text>'


def line(x1, y1, x2, y2, colour=GREY, dash=""):
    """A straight line."""
    dash = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{dash}/>'


class Scale:
    """Ratios on a logarithmic axis, which always shows 1."""

    def __init__(self, values, low, high):
        self.bottom = math.log(min([0.5, *values]))
        self.top = math.log(max([2, *values]))
        self.low, self.high = low, high

    def at(self, value):
        """Where a value lies."""
        part = (math.log(value) - self.bottom) / (self.top - self.bottom)
        return self.low + part * (self.high - self.low)

    def ticks(self):
        """Round values within."""
        steps = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500]
        return [step for step in steps if self.bottom <= math.log(step) <= self.top]


def ratios(title, rows):
    """Bars from 1 to the ratio. rows: (name, ratio, whether less is better, limit or None)."""
    rows = [row for row in rows if row[1] > 0]
    height = 60 + LINE * len(rows)
    scale = Scale([row[1] for row in rows] + [row[3] for row in rows if row[3]], LEFT, WIDTH - RIGHT)
    parts = [text(10, 20, title)]
    for tick in scale.ticks():
        parts.append(line(scale.at(tick), 30, scale.at(tick), height - 20, "#ddd"))
        parts.append(text(scale.at(tick), height - 5, f"{tick:g}", "middle", GREY))
    for number, (name, ratio, less, limit) in enumerate(rows):
        y = 40 + LINE * number
        from_x, to_x = sorted((scale.at(1), scale.at(ratio)))
        colour = GOOD if (ratio < 1) == less else BAD
        parts.append(f'<rect x="{from_x:.1f}" y="{y}" width="{max(to_x - from_x, 1):.1f}" height="{LINE - 6}" fill="{colour}"/>')
        parts.append(text(LEFT - 8, y + 11, name, "end"))
        parts.append(text(to_x + 4, y + 11, f"{ratio:.2f}"))
        if limit:
            parts.append(line(scale.at(limit), y - 2, scale.at(limit), y + LINE - 4, "black"))
    return svg(height, parts)


def history(title, commits, series):
    """Lines over the runs. series: {name: a ratio or None for each commit}."""
    series = {name: values for name, values in series.items() if any(values)}
    height = 360 + LINE * len(series)
    values = [value for row in series.values() for value in row if value]
    scale = Scale(values, 300, 40)
    step = (WIDTH - 100 - RIGHT) / max(1, len(commits) - 1)
    parts = [text(10, 20, title)]
    for tick in scale.ticks():
        parts.append(line(60, scale.at(tick), WIDTH - RIGHT, scale.at(tick), "#ddd"))
        parts.append(text(50, scale.at(tick) + 4, f"{tick:g}", "end", GREY))
    for number, commit in enumerate(commits):
        parts.append(text(100 + step * number, 325, commit[:8], "middle", GREY))
    for number, (name, row) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = [(100 + step * i, scale.at(value)) for i, value in enumerate(row) if value]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        parts.append(text(100, 355 + LINE * number, name, colour=colour))
    return svg(height, parts)
