"""Report pages: well-formed, self-contained, escaped, readable without colours or a mouse."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill.analysis.inspection import Piece
from bytemill.report import page, tag
from bytemill.report.charts import Bar, Series, bar_chart, column_chart, line_chart, parts_chart
from bytemill.report.markup import Markup, join
from bytemill.report.page import commands, figure, section, table, tiles
from bytemill.report.scale import Linear, Logarithmic, powers_of_two, ticks
from bytemill.report.svg import NARROW, WIDE, Caption, legend
from bytemill.report.tokens import chips, merge_list, sample

VOID = {"meta", "input", "br", "hr", "link", "img", "col"}
HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><b>',
    "' onfocus='x",
    "&amp;",
    "]]>",
    "-->",
]


class Checker(HTMLParser):
    """Notes tags, attributes and text, and that every element ends where it should."""

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
        assert len(names) == len(set(names)), f"an attribute is given twice: {tag} {names}"
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


def bars() -> Markup:
    caption = Caption("bars", "Bars", "Two bars.")
    return bar_chart(
        caption, [Bar("long name of a bar", 4.2, "4.20"), Bar("b", 1.0, "1.00", "f0")], "bytes per token"
    )


def lines() -> Markup:
    series = [Series("one", 1, [1.0, 2.0, 3.1]), Series("two", 2, [1.0, 1.5, 1.9], dashed=True)]
    return line_chart(
        Caption("lines", "Lines", "Two lines."), [257, 1024, 8192], series, "tokens", "bytes per token"
    )


def columns() -> Markup:
    series = [Series("one", 1, [0.5, 0.25, 0.25]), Series("two", 2, [0.1, 0.9, 0.0])]
    return column_chart(Caption("columns", "Columns", "Pairs."), ["1", "2", "3+"], series, "bytes", "share")


def parts() -> Markup:
    return parts_chart(
        Caption("parts", "Parts", "One bar."), [Bar("read", 1.0, "1 s"), Bar("write", 0.0, "0 s", "f2")]
    )


CHARTS = {"bars": bars, "lines": lines, "columns": columns, "parts": parts}


def assert_nothing_from_elsewhere(checker: Checker) -> None:
    """No element that loads or runs anything, no attribute that leads away, no style that imports."""
    for name, attributes in checker.tags:
        assert name not in {
            "script",
            "link",
            "img",
            "iframe",
            "object",
            "embed",
            "base",
            "form",
            "audio",
            "video",
        }
        for attribute, value in attributes.items():
            assert not attribute.startswith("on"), (name, attributes)
            if attribute in {"src", "href", "xlink:href", "srcset", "action", "data", "poster", "style"}:
                assert (value or "").startswith("#"), (name, attributes)
    assert not re.search(r"url\(|@import|expression\(", checker.style)


@pytest.mark.parametrize("name", CHARTS)
def test_charts_are_well_formed_and_say_what_they_show(name: str):
    checker = Checker(CHARTS[name]())
    pictures = [attributes for tag, attributes in checker.tags if tag == "svg"]
    assert [picture["class"] for picture in pictures] == ["wide", "narrow"]
    ids = {attributes["id"] for _, attributes in checker.tags if "id" in attributes}
    for picture in pictures:
        assert picture["role"] == "img"
        named = (picture["aria-labelledby"] or "").split()
        assert len(named) == 2
        assert set(named) <= ids


@pytest.mark.parametrize("name", CHARTS)
def test_shapes_stay_inside_their_picture(name: str):
    pictures = re.findall(r"<svg .*?</svg>", CHARTS[name](), re.DOTALL)
    assert len(pictures) == 2
    for picture, expected in zip(pictures, (WIDE, NARROW), strict=True):
        (_, first), *shapes = Checker(picture).tags
        width, height = map(float, (first["viewbox"] or "").split()[2:])
        assert width == expected
        limits = {"x": width, "x1": width, "x2": width, "cx": width, "y": height, "y1": height, "cy": height}
        for _, shape in shapes:
            for side, limit in limits.items():
                assert -1 <= float(shape.get(side) or 0) <= limit + 1, (side, shape)
            assert float(shape.get("x") or 0) + float(shape.get("width") or 0) <= width + 1
            assert float(shape.get("y") or 0) + float(shape.get("height") or 0) <= height + 1


def test_bars_are_as_long_as_their_values():
    checker = Checker(bars())
    first, second = [float(a["width"] or 0) for tag, a in checker.tags if tag == "rect"][:2]
    assert first / second == pytest.approx(4.2, rel=0.01)


def test_columns_of_nothing_have_no_height():
    heights = [float(a["height"] or 0) for tag, a in Checker(columns()).tags if tag == "rect"]
    assert min(heights) == 0
    assert max(heights) > 100


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
    Checker(line_chart(Caption("one", "One", "A point."), [257], [Series("s", 1, [1.0])], "tokens", "ratio"))


@pytest.mark.parametrize("text", HOSTILE)
def test_text_stays_text_wherever_it_stands(text: str):
    data = text.encode()
    pieces = [Piece(1, data, False, 0), Piece(2, data, True, len(data))]
    caption = Caption("c", text, text)
    document = page(
        text,
        text,
        [
            section(text, tiles([(text, text)]), table([text], [[text]], text), commands([text]), id_="s"),
            figure(bar_chart(caption, [Bar(text, 1, text)], text), text),
            line_chart(Caption("l", text, text), [1, 2], [Series(text, 1, [1, 2])], text, text),
            column_chart(Caption("k", text, text), [text], [Series(text, 1, [1])], text, text),
            join([parts_chart(Caption("p", text, text), [Bar(text, 1, text)]), legend([("f1", text)])]),
            sample(pieces, "sample"),
            chips([data]),
            merge_list([(data, data)], [3]),
        ],
    )
    checker = Checker(document)
    assert checker.text.count(text) >= 10
    assert_nothing_from_elsewhere(checker)


@given(st.text())
def test_attributes_and_text_are_what_was_given(text: str):
    checker = Checker(tag("p", text, title=text))
    # The parser reads line ends as browsers do.
    assert checker.tags[0][1]["title"] == text
    assert checker.text == text


@given(st.binary(max_size=30))
def test_samples_of_any_bytes_are_well_formed_and_hold_no_control_codes(data: bytes):
    document = sample([Piece(7, data, False, 0)], "s")
    Checker(document)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f]", document)


def test_tokens_say_their_ids_and_can_be_reached_and_skipped_by_keyboard():
    pieces = [
        Piece(262, b" the", False, 0),
        Piece(5, "€".encode()[:2], False, 4),
        Piece(999, b"<e>", True, 6),
    ]
    checker = Checker(sample(pieces, "s"))
    tokens = [a for tag, a in checker.tags if tag == "span" and "data-about" in a]
    assert [token["data-about"] for token in tokens] == [
        "id 262 · 4 bytes",
        "id 5 · 2 bytes · part of a character",
        "id 999 · 3 bytes · special token",
    ]
    assert all(token["tabindex"] == "0" for token in tokens)
    skip = next(a for tag, a in checker.tags if tag == "a")
    assert skip["href"] == "#s-end"
    assert any(a.get("id") == "s-end" for _, a in checker.tags)
    assert "⟨e2 82⟩" in checker.text


def test_a_page_says_what_it_is_and_fetches_nothing():
    document = page("Title", "Introduction", [section("Part", bars(), id_="part")])
    checker = Checker(document)
    assert document.startswith("<!doctype html>")
    named = [a for tag, a in checker.tags if tag == "meta"]
    attributes = {a.get("name") or a.get("http-equiv"): a.get("content") for a in named}
    assert "width=device-width" in (attributes["viewport"] or "")
    assert attributes["color-scheme"] == "light dark"
    assert (attributes["Content-Security-Policy"] or "").startswith("default-src 'none'")
    assert "prefers-color-scheme: dark" in document
    assert dict(checker.tags)["html"] == {"lang": "en"}
    assert_nothing_from_elsewhere(checker)
