"""Text of web pages."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from resiliparse.extract.html2text import extract_plain_text  # pyright: ignore[reportMissingTypeStubs, reportMissingModuleSource]
from tests.curation.crawl import page, warc_record

from bytemill.corpus import Corpus
from bytemill.corpus.html import page_text
from bytemill.errors import CorpusError


@pytest.mark.parametrize(
    ("encoding", "content_type", "meta"),
    [
        ("utf-8", "text/html; charset=utf-8", ""),
        ("utf-8", "text/html", ""),
        ("utf-8", "text/html; charset=iso-8859-2x", ""),
        ("utf-8-sig", "", ""),
        ("cp1252", "text/html; charset=windows-1252", ""),
        ("cp1252", "text/html; charset=ISO-8859-1", "<meta charset=iso-8859-1>"),
        ("cp1252", "", "<meta charset=windows-1252>"),
        ("utf-16", "", ""),
        ("shift_jis", "text/html; charset=Shift_JIS", ""),
        ("koi8-r", "", "<meta charset=koi8-r>"),
    ],
)
def test_the_encoding_is_found(encoding: str, content_type: str, meta: str) -> None:
    text = {
        "shift_jis": "吾輩は猫である。名前はまだ無い。",
        "koi8-r": "Все счастливые семьи похожи друг на друга.",
    }.get(encoding, "Ein Café für „Gäste“ – schön")
    found = page_text(
        f"<html><head>{meta}</head><body><p>{text}</p></body></html>".encode(encoding), content_type
    )
    assert found.text == text


def test_the_main_content_is_without_navigation() -> None:
    data = page("A  title\n here", "First.\nSecond.")
    assert page_text(data, main_content=True).text == "A title here\n\nFirst.\n\nSecond."
    assert page_text(data).text == "Home About us\n\nA title here\n\nFirst.\n\nSecond.\n\nCopyright"
    assert page_text(data).title == "A title here"
    assert page_text(b"<p>x").title is None
    linked = b'<p>See <a href="https://example.org/">this</a>.</p>'
    assert "https://example.org/" in page_text(linked, links=True).text


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=60), st.booleans())
def test_the_text_is_that_of_resiliparse(body: str, main_content: bool) -> None:
    html = f"<!doctype html><title>t</title><main><p>{body}</p></main>"
    found = page_text(html.encode(), main_content=main_content)
    assert found.text == extract_plain_text(html, main_content=main_content)


@given(st.binary(max_size=200))
def test_any_bytes_give_text(data: bytes) -> None:
    page_text(data).text.encode()


def test_html_files_and_responses_are_documents_of_a_corpus(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_bytes(page("A", "One."))
    (tmp_path / "b.warc").write_bytes(
        warc_record("http://example.org/", page("B", "Two."))
        + warc_record("http://example.org/i", b"x", "image/png")
    )
    corpus = Corpus([str(tmp_path / "a.html"), str(tmp_path / "b.warc")])
    texts = [bytes(batch.data).decode() for batch in corpus.read()]
    assert texts == [
        f"Home About us\n\n{title}\n\n{text}\n\nCopyright" for title, text in (("A", "One."), ("B", "Two."))
    ]


@pytest.fixture
def without_resiliparse(monkeypatch: pytest.MonkeyPatch) -> None:
    import bytemill.corpus.formats as formats  # noqa: PLR0402

    real = formats.import_module

    def import_module(name: str) -> Any:
        if name.startswith("resiliparse"):
            raise ImportError(name)
        return real(name)

    monkeypatch.setattr(formats, "import_module", import_module)


@pytest.mark.usefixtures("without_resiliparse")
def test_without_resiliparse_one_line_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_bytes(page("A", "One."))
    with pytest.raises(CorpusError, match=r"a\.html: web pages need resiliparse") as error:
        list(Corpus(str(tmp_path / "a.html")).read())
    assert "curate" in str(error.value.hint)
