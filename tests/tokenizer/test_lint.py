"""Rules about vocabularies, each on a vocabulary that breaks it and on one that does not."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill import Tokenizer, TokenizerError, TrainingStoppedEarly, count_tokens, lint, reference
from bytemill.formats.spec import TokenFlags
from bytemill.report.lint_page import lint_page
from bytemill.tokenizer.surgery.findings import Finding

END = "<|endoftext|>"


def with_tokens(*tokens: bytes, merges: list[tuple[bytes, bytes]] | None = None, **changes: Any) -> Tokenizer:
    """The 256 bytes and further tokens; by default each is merged from single bytes, from the left."""
    single = {byte: bytes([byte]) for byte in range(256)}
    vocab = {**single, **{256 + i: token for i, token in enumerate(tokens)}}
    if merges is None:
        merges = []
        known = set(single.values())
        for token in tokens:
            for end in range(2, len(token) + 1):
                if token[:end] not in known:
                    merges.append((token[: end - 1], token[end - 1 : end]))
                    known.add(token[:end])
                    vocab.setdefault(len(vocab), token[:end])
        vocab = {**single, **{256 + i: left + right for i, (left, right) in enumerate(merges)}}
    base = Tokenizer(single, [], pattern="gpt2").to_spec()
    return Tokenizer.from_spec(replace(base, vocab=vocab, merges=merges, **changes))


def findings(tok: Tokenizer, counts: Any = None) -> dict[str, Finding]:
    return {finding.rule: finding for finding in lint(tok, counts).findings}


def tokens_of(tok: Tokenizer, rule: str) -> list[bytes]:
    found = findings(tok).get(rule)
    return [] if found is None else [example.token for example in found.examples]


def test_a_trained_vocabulary_has_no_errors() -> None:
    text = "The low lower lowest, slower and slowest; newest widest." * 3
    tok = bytemill.train_from_iterator([text], 280, [END])
    found = lint(tok)
    assert found.count("error") == 0
    assert {finding.rule for finding in found.findings} <= {"size"}


@given(
    merges=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=14),
    ignore_merges=st.booleans(),
)
def test_unreachable_tokens_are_those_that_the_reference_never_makes(*, merges, ignore_merges) -> None:
    """Any list of merges in order: which tokens do their own bytes give?"""
    parts = [b"a", b"b", b"c"]
    listed: list[tuple[bytes, bytes]] = []
    for left, right in merges:
        pair = parts[left % len(parts)], parts[right % len(parts)]
        if pair[0] + pair[1] not in parts:
            listed.append(pair)
            parts.append(pair[0] + pair[1])
    tok = with_tokens(*parts[3:], merges=listed, ignore_merges=ignore_merges, pattern=None)
    order = {merge: i for i, merge in enumerate(listed)}
    expected = [token for token in parts[3:] if reference.apply_merges(token, order) != [token]]
    found = findings(tok)
    rule = "only-whole" if ignore_merges else "unreachable"
    assert ([each.token for each in found[rule].examples] if rule in found else []) == sorted(
        expected, key=parts.index
    )
    if not ignore_merges:
        assert tokens_of(tok, "dead-merge") == expected


def test_the_proof_of_an_unreachable_token_is_what_its_bytes_give() -> None:
    tok = with_tokens(b"ab", b"bc", b"abc", merges=[(b"b", b"c"), (b"a", b"b"), (b"ab", b"c")])
    assert [str(each) for each in findings(tok)["unreachable"].examples] == [
        "258 'abc' (its bytes give 97 257)"
    ]
    assert [str(each) for each in findings(tok)["dead-merge"].examples] == ["258 'abc' ('ab' + 'c')"]


@pytest.mark.parametrize(
    ("rule", "broken", "fine"),
    [
        ("hexadecimal", b"0123456789abcdef", b"0123456789abcde"),
        ("base64", b"aB3dEfGhIjKlMnOp", b"InternationalizationOf"),
        ("url", b"https", b"hits"),
        ("repeated-character", b"-" * 16, b"-" * 15),
        ("mixed-scripts", "aж".encode(), "日本の".encode()),
        ("partial-character", "é".encode() + b"\xc3", "éé".encode()),
    ],
)
def test_junk_is_named(rule: str, broken: bytes, fine: bytes) -> None:
    assert broken in tokens_of(with_tokens(broken), rule)
    assert fine not in tokens_of(with_tokens(fine), rule)


def test_tokens_that_the_pattern_divides_are_found() -> None:
    assert tokens_of(with_tokens(b"a b"), "divided-by-pattern") == [b"a ", b"a b"]
    assert tokens_of(with_tokens(b" b"), "divided-by-pattern") == []


def test_special_tokens_that_text_can_spell_are_found() -> None:
    assert tokens_of(with_tokens(special_tokens={"pad": 300, END: 301}), "special-token-as-text") == [b"pad"]
    added = {"pad": TokenFlags(special=False)}
    assert tokens_of(with_tokens(special_tokens={"pad": 300}, flags=added), "special-token-as-text") == []


def test_tokens_with_two_ids_are_found() -> None:
    spec = with_tokens(b"low").to_spec()
    flags = {"low": TokenFlags(special=False)}
    tok = Tokenizer.from_spec(replace(spec, special_tokens={"low": 300}, flags=flags))
    assert [str(each) for each in findings(tok)["duplicate"].examples] == ["300 'low' (also 257)"]


def test_ids_without_a_token_and_odd_sizes_are_found() -> None:
    found = findings(with_tokens(special_tokens={END: 260}))
    assert found["id-without-token"].message == "4 ids without a token: 256, 257, 258, 259"
    assert "261 ids do not divide by 64: models pad their embeddings, to 320" in found["size"].message
    assert "size" not in findings(with_tokens(special_tokens={END: 319}))


def test_use_is_that_of_the_text() -> None:
    tok = with_tokens(b"low", b"lower")
    counts = count_tokens(tok, ["low " * 999 + "x"])
    found = findings(tok, counts)
    assert [each.token for each in found["unused"].examples] == [b"lo", b"lowe", b"lower"]
    frequent = np.sort(counts)[::-1]
    n_needed = next(n for n in range(1, len(counts)) if frequent[:n].sum() >= 0.999 * counts.sum())
    assert found["needed-ids"].message.startswith(f"{n_needed} ids")
    assert [str(each) for each in found["half-word"].examples] == ["256 'lo' (only in 'low')"]
    with pytest.raises(TokenizerError, match="counts have the shape"):
        lint(tok, counts[1:])


def test_published_vocabularies_have_the_junk_that_is_known(shared_data: Path) -> None:
    tok = Tokenizer.load(shared_data / "r50k_base.tiktoken", pattern="gpt2", special_tokens={END: 50256})
    found = findings(tok)
    assert "unreachable" not in found
    assert "dead-merge" not in found
    repeated = [each.token for each in found["repeated-character"].examples]
    assert b"ab" not in repeated
    assert b"-" * 64 in repeated
    partial = {each.token for each in found["partial-character"].examples}
    for token in tok.vocab.values():
        # Some tokens of the vocabulary are the replacement character itself.
        has_replaced = "\ufffd" in token.decode("utf-8", "replace") and b"\xef\xbf\xbd" not in token
        assert (token in partial) == (has_replaced and len(token) > 1) or b"\xef\xbf\xbd" in token


def test_the_page_has_every_finding() -> None:
    found = lint(with_tokens(b"https", b"<b>\xc3", special_tokens={"pad": 300}))
    page = lint_page(found, "a<b>.json")
    for finding in found.findings:
        assert f'id="{finding.rule}"' in page
    assert "a&lt;b&gt;.json" in page
    assert "https" in page


def test_unreachable_tokens_of_ignored_merges_are_used_whole() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainingStoppedEarly)
        tok = with_tokens(b"abc", merges=[], ignore_merges=True)
    assert tokens_of(tok, "only-whole") == [b"abc"]
    assert tokens_of(tok, "unreachable") == []
    assert tokens_of(with_tokens(b"a b", merges=[], ignore_merges=True), "unreachable") == [b"a b"]
