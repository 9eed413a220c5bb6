"""Images of tokens: well-formed SVG, one box per token, nothing fetched."""

from pathlib import Path
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill.analysis.inspection import TextToken, inspect
from bytemill.report.tokens import tokens_svg

SVG = "{http://www.w3.org/2000/svg}"
IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=30), st.booleans()), min_size=1, max_size=60))
def test_any_tokens_give_well_formed_svg_with_one_box_each(tokens: list[tuple[bytes, bool]]) -> None:
    image = ET.fromstring(  # noqa: S314 (our own output)
        tokens_svg(TextToken(i, data, special, 0) for i, (data, special) in enumerate(tokens))
    )
    assert image.tag == f"{SVG}svg"
    assert len(image.findall(f".//{SVG}rect")) == len(tokens)
    shown_ids = [element.text for element in image.iter(f"{SVG}text") if element.get("class") == "id"]
    assert shown_ids == [str(i) for i in range(len(tokens))]


def test_markup_in_the_text_is_escaped() -> None:
    image = tokens_svg([TextToken(1, b"</text><script>&", False, 0)])
    assert "<script" not in image
    assert "&lt;script&gt;&amp;" in image


def test_boxes_stay_inside_the_image_and_do_not_overlap() -> None:
    text = "long words and 日本語 " * 20
    pieces = [TextToken(i, data.encode(), False, 0) for i, data in enumerate(text)]
    image = ET.fromstring(tokens_svg(pieces))  # noqa: S314
    width = float(image.attrib["width"])
    ends: dict[str, float] = {}
    for box in image.iter(f"{SVG}rect"):
        start, row = float(box.attrib["x"]), box.attrib["y"]
        assert start >= ends.get(row, 0.0)
        ends[row] = start + float(box.attrib["width"])
        assert ends[row] <= width + 0.5
    assert len(ends) > 1


def test_the_picture_of_the_readme_is_what_its_command_prints(shared_data: Path) -> None:
    tokenizer = bytemill.Tokenizer.load(shared_data / "cl100k_base.tiktoken")
    text = (IMAGES / "tokens.txt").read_text(encoding="utf-8")
    assert tokens_svg(inspect(tokenizer, text).tokens) == (IMAGES / "tokens.svg").read_text(encoding="utf-8")
