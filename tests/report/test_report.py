"""Report pages: well-formed, self-contained, escaped, readable without colours or a mouse."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.report.page_script import without_script

from bytemill.analysis.inspection import TextToken
from bytemill.report import (
    Chart,
    Figure,
    Interval,
    Series,
    Table,
    heat_map,
    interval_chart,
    line_chart,
)
from bytemill.report.charts import NARROW, WIDE, Linear, Logarithmic, powers_of_two, ticks
from bytemill.report.rendering import environment

VOID = {"meta", "input", "br", "hr", "link", "img", "col"}
HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><b>',
    "' onfocus='x",
    "&amp;",
    "{{ 1 + 1 }}",
    "-->",
]


class Checker(HTMLParser):
    """Collects elements, attributes and text, and checks that every element ends where it should."""

    def __init__(self, document: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = self.style = ""
        self.feed(document)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"duplicate attribute: {tag} {names}"
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> ends nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            self.style += data
        else:
            self.text += data


def rendered(source: str, **context: Any) -> str:
    """Render a template that has the macros as `blocks`."""
    return environment().from_string('{% import "macros.html" as blocks %}' + source).render(context)


def picture(chart: Chart) -> str:
    return rendered("{{ blocks.chart(chart) }}", chart=chart)


def style_sheet() -> str:
    return Checker(rendered('{% extends "page.html" %}')).style


def intervals() -> Chart:
    rows = [
        Interval("a long name", 4.2, 4.0, 4.5, "4.20"),
        Interval("b", 1.0, 0.9, 1.1, "1.00", "f2"),
        Interval("c", 2.0, 2.0, 2.0, "2.00"),
    ]
    return interval_chart("intervals", "Intervals", rows, "bytes")


def lines() -> Chart:
    sizes = (257, 1024, 8192)
    series = [
        Series("one", 1, list(zip(sizes, (1.0, 2.0, 3.1), strict=True))),
        Series("two", 6, list(zip(sizes, (1.0, 1.5, 1.9), strict=True)), dashed=True),
    ]
    return line_chart("lines", "Lines", "Two.", series, x_axis="tokens", y_axis="bytes", log_x=True)


def curves() -> Chart:
    series = [
        Series("training", 2, [(0, 9.0), (50, 6.1), (100, 5.5)], has_dots=False),
        Series("validation", 1, [(100, 5.7)]),
    ]
    levels = [("uniform", 9.01), ("unigram", 6.8)]
    return line_chart("curves", "Curves", "Two.", series, x_axis="step", y_axis="nats", levels=levels)


def fields() -> Chart:
    return heat_map(
        "map", "Map", ["a", "b"], ["x", "y"], [[1.0, 2.0], [3.0, None]], shown=lambda value: f"{value:.1f}"
    )


CHARTS = {"map": fields, "intervals": intervals, "lines": lines, "curves": curves}


def assert_self_contained(checker: Checker) -> None:
    """No element loads or runs anything, no attribute leads away, no style imports anything."""
    forbidden = {"script", "link", "img", "iframe", "object", "embed", "base", "form", "audio", "video"}
    for name, attributes in checker.tags:
        assert name not in forbidden
        for attribute, value in attributes.items():
            assert not attribute.startswith("on"), (name, attributes)
            if attribute in {"src", "href", "xlink:href", "srcset", "action", "data", "poster", "style"}:
                assert (value or "").startswith("#"), (name, attributes)
    assert not re.search(r"url\(|@import|expression\(", checker.style)


@pytest.mark.parametrize("name", CHARTS)
def test_charts_are_well_formed_and_have_a_text_alternative(name: str):
    checker = Checker(picture(CHARTS[name]()))
    pictures = [attributes for tag, attributes in checker.tags if tag == "svg" and "role" in attributes]
    assert [attributes["class"] for attributes in pictures] == ["wide", "narrow"]
    ids = {attributes["id"] for _, attributes in checker.tags if "id" in attributes}
    for attributes in pictures:
        assert attributes["role"] == "img"
        named = (attributes["aria-labelledby"] or "").split()
        assert len(named) == 2
        assert set(named) <= ids


@pytest.mark.parametrize("name", CHARTS)
def test_shapes_stay_inside_their_picture(name: str):
    pictures = re.findall(r"<svg [^>]*role=.*?</svg>", picture(CHARTS[name]()), re.DOTALL)
    assert len(pictures) == 2
    for one, expected in zip(pictures, (WIDE, NARROW), strict=True):
        (_, first), *shapes = Checker(one).tags
        width, height = map(float, (first["viewbox"] or "").split()[2:])
        assert width == expected
        limits = {"x": width, "x1": width, "x2": width, "cx": width, "y": height, "y1": height, "cy": height}
        for _, shape in shapes:
            for side, limit in limits.items():
                assert -1 <= float(shape.get(side) or 0) <= limit + 1, (side, shape)
            assert float(shape.get("x") or 0) + float(shape.get("width") or 0) <= width + 1
            assert float(shape.get("y") or 0) + float(shape.get("height") or 0) <= height + 1


@pytest.mark.parametrize("name", CHARTS)
def test_every_line_has_a_stroke_and_every_area_a_fill(name: str):
    style = style_sheet()
    for tag, attributes in Checker(picture(CHARTS[name]())).tags:
        classes = (attributes.get("class") or "").split()
        needed = {"path": "stroke:", "line": "stroke:", "rect": "fill:", "circle": "fill:"}.get(tag)
        if needed is not None:
            rules = [rule for each in classes for rule in re.findall(rf"\.{each} {{([^}}]*)}}", style)]
            assert any(re.search(rf"{needed} var\(", rule) for rule in rules), (tag, classes)


def test_levels_are_dashed_lines_with_their_value():
    drawing = curves().drawings[0]
    dashed = [shape for shape in drawing.shapes if "dashed" in str(shape.attributes.get("class"))]
    assert len(dashed) == 2
    assert {"uniform: 9.01", "unigram: 6.80"} <= {shape.text for shape in drawing.shapes}


def test_intervals_are_as_long_as_the_distance_of_their_ends():
    for drawing in intervals().drawings:
        lengths = [
            float(shape.attributes["width"] or 0) for shape in drawing.shapes if shape.element == "rect"
        ]
        assert lengths[0] / lengths[1] == pytest.approx(0.5 / 0.2, rel=0.01)
        assert lengths[2] == 0


@given(st.floats(1e-6, 1e9))
def test_ticks_begin_at_0_and_reach_the_largest_value(largest: float):
    steps = ticks(largest)
    assert steps[0] == 0
    assert steps[-2] < largest * (1 + 1e-6)
    assert steps[-1] >= largest * (1 - 1e-6)
    assert 2 <= len(steps) <= 12


def test_scales_meet_their_ends():
    assert [Linear(4, 10, 50)(value) for value in (0, 1, 4)] == [10, 20, 50]
    assert Linear(0, 10, 50)(0) == 10
    logarithmic = Logarithmic(256, 1024, 0, 2)
    assert [logarithmic(value) for value in (256, 512, 1024)] == pytest.approx([0, 1, 2])
    assert Logarithmic(257, 257, 0, 2)(257) == 1
    assert powers_of_two(256, 256) == [256]


def test_a_line_of_a_single_point_is_drawn():
    series = [Series("s", 1, [(257, 1.0)])]
    chart = line_chart("one", "One", "A point.", series, x_axis="tokens", y_axis="ratio", log_x=True)
    assert picture(chart).count("<circle") == 2


@pytest.mark.parametrize("text", HOSTILE)
def test_text_stays_text_wherever_it_stands(text: str):
    data = text.encode()
    line = line_chart("l", text, text, [Series(text, 1, [(1, 1), (2, 2)])], x_axis=text, y_axis=text)
    table = heat_map("k", text, [text], [text], [[1.0]], shown=lambda _: text)
    document = rendered(
        """{% extends "page.html" %}{% block title %}{{ text }}{% endblock %}{% block main %}
        {% call blocks.section("s", text) %}
        {{ blocks.tiles([(text, text)]) }}{{ blocks.figure(figure) }}{{ blocks.chart(line) }}
        {{ blocks.chart(table) }}{{ blocks.token_view(tokens) }}
        {{ blocks.chips([data]) }}{{ blocks.merge_list([((data, data), 3)]) }}{{ blocks.command(text) }}
        {% endcall %}{% endblock %}""",
        text=text,
        data=data,
        figure=Figure(
            interval_chart("c", text, [Interval(text, 1, 1, 1, text)], text),
            text,
            Table(text, [text], [[text]]),
        ),
        line=line,
        table=table,
        tokens=[TextToken(1, data, False, 0), TextToken(2, data, True, len(data))],
    )
    checker = Checker(without_script(document))
    assert checker.text.count(text) >= 10
    assert_self_contained(checker)


@given(st.binary(max_size=30))
def test_token_views_of_any_bytes_are_well_formed_and_hold_no_control_codes(data: bytes):
    document = rendered("{{ blocks.token_view(tokens) }}", tokens=[TextToken(7, data, False, 0)])
    Checker(document)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f]", document)


def test_tokens_show_their_ids_and_take_one_tab_stop_together():
    tokens = [
        TextToken(262, b" the", False, 0),
        TextToken(5, "€".encode()[:2], False, 4),
        TextToken(999, b"<e>", True, 6),
    ]
    checker = Checker(rendered("{{ blocks.token_view(tokens) }}", tokens=tokens))
    assert [a["data-about"] for tag, a in checker.tags if tag == "span"] == [
        "id 262 · 4 bytes",
        "id 5 · 2 bytes · part of a character",
        "id 999 · 3 bytes · special token",
    ]
    assert [tag for tag, a in checker.tags if tag in {"a", "input", "button"} or "tabindex" in a] == ["input"]
    assert " the262⟨e2 82⟩5<e>999" in checker.text


def test_token_views_keep_the_line_ends_of_the_text():
    tokens = [TextToken(1, b"a\n\nb", False, 0), TextToken(2, b"\n", False, 4), TextToken(3, b"c", False, 5)]
    checker = Checker(rendered("{{ blocks.token_view(tokens) }}", tokens=tokens))
    assert "a↵\n↵\nb1↵2\nc3" in checker.text


def test_commands_and_samples_wrap_on_a_narrow_screen():
    rules = " ".join(re.findall(r"^pre {([^}]*)}", style_sheet(), re.MULTILINE))
    assert "white-space: pre-wrap" in rules
    assert "overflow-wrap: anywhere" in rules


def test_a_page_fetches_nothing_and_adapts_to_phones_and_dark_mode():
    document = rendered('{% extends "page.html" %}{% block title %}Title{% endblock %}')
    checker = Checker(without_script(document))
    assert document.startswith("<!doctype html>")
    named = [a for tag, a in checker.tags if tag == "meta"]
    attributes = {a.get("name") or a.get("http-equiv"): a.get("content") for a in named}
    assert "width=device-width" in (attributes["viewport"] or "")
    assert attributes["color-scheme"] == "light dark"
    assert (attributes["Content-Security-Policy"] or "").startswith("default-src 'none'")
    assert "prefers-color-scheme: dark" in document
    assert dict(checker.tags)["html"] == {"lang": "en"}
    assert_self_contained(checker)
