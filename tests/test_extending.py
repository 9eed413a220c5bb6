"""The extensions of docs/guides/extending.md, registered from outside the package."""

import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bytemill.analysis.metrics import TEXT_METRICS, TOKENIZER_METRICS
from bytemill.comparison.figures import FIGURES
from bytemill.corpus.formats import FORMATS as CORPUS_FORMATS
from bytemill.data.layouts import LAYOUTS
from bytemill.formats.registry import FORMATS as TOKENIZER_FORMATS

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "guides" / "extending.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
REGISTRIES: tuple[dict[str, Any], ...] = (
    CORPUS_FORMATS,
    LAYOUTS,
    TEXT_METRICS,
    TOKENIZER_METRICS,
    FIGURES,
    TOKENIZER_FORMATS,
)


@pytest.fixture
def printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[list[str]]:
    """Runs every example in one folder: the lines that they print. Unregisters what they registered."""
    monkeypatch.chdir(tmp_path)
    before = [set(registry) for registry in REGISTRIES]
    names: dict[str, object] = {}
    try:
        for code in EXAMPLES:
            exec(compile(code, "extending.md", "exec"), names)  # noqa: S102  (the page is ours)
        yield capsys.readouterr().out.splitlines()
    finally:
        for registry, known in zip(REGISTRIES, before, strict=True):
            for name in set(registry) - known:
                del registry[name]


def test_the_examples_print_what_they_should(printed: list[str]) -> None:
    assert len(EXAMPLES) == 10
    assert printed == [
        "['Once upon a time\\nthere was a mill.', 'It milled bytes.\\n']",
        "[] Once upon a time",
        "dict_keys(['bytes_per_token', 'tokens_per_word'])",
        "dict_keys(['whole_character_share'])",
        "5.0 True",
        "fingerprint True",
    ]


@pytest.mark.usefixtures("printed")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["tokenizer", "show", "tales.hexfile"], "whole characters"),
        (["tokenizer", "inspect", "tales.hexfile", "Once upon a time"], "tokens/word"),
        (["tokenizer", "compare", "tales.json", "tales.hexfile", "--text", "tales.par"], "longest token"),
        (["tokenizer", "convert", "tales.hexfile", "again.hexfile"], "hexfile"),
        (["tokenizer", "train", "tales.par", "-n", "280", "-o", "t.json"], "t.json"),
        (["data", "encode", "tales.hexfile", "tales.par", "-o", "out", "--layout", "big"], "big, uint32"),
    ],
)
def test_the_command_line_uses_registered_extensions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    from bytemill.cli import main

    monkeypatch.setattr(sys, "argv", ["bytemill"])
    with contextlib.suppress(SystemExit):
        main(arguments)
    captured = capsys.readouterr()
    assert says in captured.out
    assert "error" not in captured.err


def test_names_and_suffixes_are_unique() -> None:
    from bytemill.analysis.metrics import TextMetric, register_metric
    from bytemill.errors import TokenizerError
    from bytemill.formats.registry import TokenizerFormat, register_tokenizer_format

    with pytest.raises(ValueError, match="'bytes_per_token' is already registered"):
        register_metric(TextMetric("bytes_per_token", "bytes/token", lambda _: 1.0))
    for name, suffix, says in (("gpt2", ".x", "has the name"), ("x", ".json", "has the suffix '.json'")):
        with pytest.raises(TokenizerError, match=says):
            register_tokenizer_format(TokenizerFormat(name, "", (suffix,), lambda _: False, lambda *_: None))  # type: ignore[arg-type,return-value]
