"""HTML for notebooks is escaped and bounded."""

from html.parser import HTMLParser

import bytemill

BYTES = {byte: bytes([byte]) for byte in range(256)}


class Spans(HTMLParser):
    """Collects the texts of all spans; fails on tags that tokens must not introduce."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: set[str] = set()
        self._inside = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        self.tags.add(tag)
        self._inside = tag == "span"
        if self._inside:
            self.texts.append("")

    def handle_endtag(self, tag: str) -> None:
        del tag
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.texts[-1] += data


def test_tokens_are_shown_escaped_with_visible_white_space() -> None:
    tokenizer = bytemill.Tokenizer(BYTES, [], ["<script>"])
    text = "<b>&\"' \n\té<script>"
    expected = [*"<b>&\"'·↵⇥", "⟨c3⟩", "⟨a9⟩", "<script>"]
    for result in (tokenizer.encode_with_offsets(text), tokenizer.explain(text)):
        spans = Spans(result._repr_html_())
        assert spans.texts == expected
        assert spans.tags <= {"div", "span", "wbr", "small", "em"}


def test_output_is_bounded() -> None:
    tokenizer = bytemill.Tokenizer(BYTES, [], ["x" * 10_000])
    for result in (tokenizer.encode_with_offsets("a " * 50_000), tokenizer.explain("a " * 5_000)):
        html = result._repr_html_()
        assert len(Spans(html).texts) == 300
        assert "more</em>" in html
        assert len(html) < 300 * 400
    assert len(tokenizer.encode_with_offsets("x" * 10_000)._repr_html_()) < 1000
    assert len(tokenizer._repr_html_()) < 2000


def test_a_tokenizer_shows_its_sizes_and_escapes_its_special_tokens() -> None:
    html = bytemill.Tokenizer(BYTES, [], ["<|endoftext|>", "<i>"])._repr_html_()
    assert "258" in html
    assert "gpt2" in html
    assert "&lt;i&gt;" in html
    assert "<i>" not in html


def test_empty_results_are_shown() -> None:
    tokenizer = bytemill.Tokenizer(BYTES, [])
    assert "0 tokens" in tokenizer.encode_with_offsets("")._repr_html_()
    assert "0 tokens" in tokenizer.explain("")._repr_html_()
