"""Draw docs/images/rates.svg, the chart of the README, from the first table of docs/reference/benchmarks.md.

    python docs/rates_chart.py > docs/images/rates.svg

A test compares the committed image with what this prints.
"""

import re
from pathlib import Path

PAGE = Path(__file__).parent / "reference" / "benchmarks.md"
TEXTS = ("English", "code", "multilingual")
LEFT, SCALE, BAR, GAP, TOP = 210, 0.95, 18, 14, 34
"""Left end of the bars, pixels for each MB/s, height of a bar, space between groups, space for the title."""

STYLE = """\
text{font:13px system-ui,sans-serif;fill:#1f2328}
.title{font-weight:600}.end{text-anchor:end}.best{font-weight:600}
.bar0{fill:#3b5bdb}.bar1{fill:#9aa5b1}.bar2{fill:#c9d0d8}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.bar0{fill:#748ffc}.bar1{fill:#76808c}.bar2{fill:#4c545e}}"""


def rates(page: str) -> dict[str, list[float]]:
    """Return the rates on new text of each tool, in MB/s and in the order of `TEXTS`."""
    table = page[page.index("### Encoding") :].split("\n\n")[2]
    rows = [[cell.strip(" *") for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    if tuple(rows[0][1:4]) != TEXTS:
        raise ValueError(f"{PAGE}: the first table under Encoding has other columns: {rows[0]}")
    return {row[0]: [float(cell) for cell in row[1:4]] for row in rows[2:] if re.fullmatch(r"\d+", row[1])}


def draw(found: dict[str, list[float]]) -> str:
    """Return the chart as SVG: for each text, one bar per tool."""
    shapes: list[str] = []
    y = TOP
    for i, text in enumerate(TEXTS):
        shapes.append(f'<text class="end" x="92" y="{y + 13}">{text}</text>')
        for k, (tool, values) in enumerate(found.items()):
            width, best = values[i] * SCALE, ' class="best"' if k == 0 else ""
            shapes += [
                f'<text class="end{" best" if k == 0 else ""}" x="{LEFT - 8}" y="{y + 13}">{tool}</text>',
                f'<rect class="bar{k}" x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR - 3}" rx="2"/>',
                f'<text{best} x="{LEFT + width + 6:.1f}" y="{y + 13}">{values[i]:.0f}</text>',
            ]
            y += BAR
        y += GAP
    label = "; ".join(
        f"{text}: " + ", ".join(f"{tool} {values[i]:.0f}" for tool, values in found.items())
        for i, text in enumerate(TEXTS)
    )
    width = LEFT + max(max(values) for values in found.values()) * SCALE + 46
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {y}" width="{width:.0f}" '
            f'height="{y}" role="img" aria-label="Encoding new text, MB/s. {label}">',
            f"<style>{STYLE}</style>",
            '<text class="title" x="8" y="16">Encoding new text with cl100k on one thread, MB/s</text>',
            *shapes,
            "</svg>",
        ]
    )


if __name__ == "__main__":
    print(draw(rates(PAGE.read_text(encoding="utf-8"))))
