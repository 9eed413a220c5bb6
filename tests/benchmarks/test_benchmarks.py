"""The cases of the benchmarks run, refuse what would make their figures wrong, and mix their texts as they say."""

import argparse
import base64
import doctest
import gzip
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import regex
from benchmarks.__main__ import CASES, main
from benchmarks.peers import encoders, trainers
from benchmarks.texts import corpus, generated, packages
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import encode, exactness, harness, limits, train

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("checked", [harness, packages, generated, corpus, train, exactness, limits])
def test_examples_in_docstrings_hold(checked: ModuleType) -> None:
    results = doctest.testmod(checked)
    assert results.failed == 0
    assert results.attempted > 0


@pytest.mark.parametrize("name", [name for name in CASES if name != "gpu"])
def test_every_case_is_declared_and_explains_its_figures(name: str) -> None:
    function = getattr(importlib.import_module(f"benchmarks.{CASES[name][0]}"), name.replace("-", "_"))
    assert f"python -m benchmarks {name}" in function.__doc__
    with pytest.raises(SystemExit) as end:
        harness.run_case(name, function, ["--help"])
    assert end.value.code == 0


def test_a_case_that_there_is_not_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", "encoed"])
    assert main() == 2
    assert capsys.readouterr().err.startswith("error: no case is called 'encoed'")


class TestPlainText:
    def test_navigation_and_scripts_go_and_nested_ones_with_them(self) -> None:
        page = "<nav>a<nav>b</nav>c</nav><div role='navigation'><div>d</div>e</div><script>f</script><p>g</p>"
        assert packages.text_of_html(page) == "g\n"

    def test_blanks_collapse_except_in_pre(self) -> None:
        assert packages.text_of_html("<p>a\n  b</p><pre>  c\n  d</pre>") == "a b\n\n  c\n  d\n"

    def test_a_manual_page_is_known_by_its_folder_and_unpacked(self) -> None:
        page = gzip.compress(b".SH NAME\nls \\- \\fIlist\\fR \\(lqit\\(rq\n.IP \\(bu 4\nitem\n")
        text = packages.text_of_file("usr/share/man/man1/ls.1.gz", page)
        assert text == "NAME\nls - list “it”\n•\nitem\n"

    @pytest.mark.parametrize("data", [b"", b" \n", b"\x00\x01", "é".encode("latin-1") * 10])
    def test_what_holds_no_text_is_none(self, data: bytes) -> None:
        assert packages.text_of_file("a.txt", data) is None

    def test_a_damaged_archive_is_none(self) -> None:
        assert packages.text_of_file("a.txt.gz", gzip.compress(b"text" * 100)[:-9]) is None


class TestMix:
    @given(
        st.dictionaries(st.text(min_size=1, max_size=3), st.integers(0, 1000), min_size=1),
        st.integers(0, 3000),
    )
    def test_shares_are_equal_up_to_what_each_source_has(
        self, available: dict[str, int], wanted: int
    ) -> None:
        shares: dict[str, int] = corpus.equal_shares(available, wanted)
        assert sum(shares.values()) <= min(wanted, sum(available.values()))
        assert sum(shares.values()) > min(wanted, sum(available.values())) - len(available)
        largest = max(shares.values())
        assert all(shares[name] == available[name] or shares[name] >= largest - 1 for name in available)

    def test_a_text_keeps_its_size_whole_lines_and_order_whatever_the_order_of_its_documents(self) -> None:
        documents = [(f"s{n % 3}", corpus.Document(f"d{n}", f"document {n}\n" * (n + 1))) for n in range(40)]
        texts = []
        for order in (documents, documents[::-1]):
            pieces = corpus.mix(corpus.collect(order, long_lines_once=False), 3000)
            texts.append(b"".join(piece.content for piece in pieces))
        assert texts[0] == texts[1]
        assert 2900 < len(texts[0]) <= 3000
        assert {line.split()[0] for line in texts[0].splitlines()} == {b"document"}
        assert texts[0].endswith(b"\n")

    def test_no_document_and_no_untranslated_line_is_counted_twice(self) -> None:
        english = "This sentence was left as it is in all languages.\n"
        texts = ["eins\n" + english, "deux\n" + english, "eins\n" + english]
        documents = [("s", corpus.Document(f"d{n}", text)) for n, text in enumerate(texts)]
        pieces = corpus.collect(documents, long_lines_once=True)
        assert [piece.content.decode() for piece in pieces] == ["eins\n" + english, "deux\n"]


@given(st.lists(st.text(alphabet="aé'\n ’\t1本", max_size=30), max_size=12))
def test_pieces_for_the_trainers_join_to_the_text_and_cut_no_pretoken(parts: list[str]) -> None:
    pieces = list(trainers.pieces_of(parts))
    whole = "".join(parts)
    assert "".join(pieces) == whole
    words = [word for piece in pieces for word in regex.findall(trainers.EXPRESSION, piece)]
    assert words == regex.findall(trainers.EXPRESSION, whole)


def test_pieces_for_the_trainers_are_many_where_they_can_be() -> None:
    assert list(trainers.pieces_of(["ab\ncd", "\nef\n\ngh"])) == ["ab\n", "cd\n", "ef\n\ngh"]


def test_text_is_read_up_to_a_whole_character(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_text("aé本😀", encoding="utf-8")
    read = harness.read_text
    assert [read(file, n) for n in range(11)] == ["", "a", "a", *["aé"] * 3, *["aé本"] * 4, "aé本😀"]
    assert read(file, None) == "aé本😀"


def test_merges_of_ranks_are_those_that_made_them() -> None:
    merges = [(b"a", b"b"), (b"ab", b"a"), (b"ab", b"ab"), (b"aba", b"ab")]
    ranks = {bytes([byte]): byte for byte in range(256)}
    ranks |= {left + right: 256 + place for place, (left, right) in enumerate(merges)}
    assert encoders.merges_of_ranks(ranks) == merges


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module whose functions are called in other processes."""
    lines = (
        "import time",
        "from benchmarks import harness",
        "def fail(_): raise SystemExit('no luck')",
        "def need(name): return harness.require(name)",
        "def go_on(_):",
        "    print('{\"n\": 1}'); print('{\"n\": 2}'); print('{\"n', end='', flush=True)",
        "    time.sleep(60)",
    )
    (tmp_path / "a_program.py").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "a_program", raising=False)
    return importlib.import_module("a_program")


def test_a_worker_that_fails_or_has_nothing_to_measure_gives_its_reason(program: Any) -> None:
    assert harness.measure_in_process(program.fail, None).reason == "failed (1): no luck"
    assert harness.measure_in_process(program.need, "no_such_tool").reason == "not installed"


def test_a_worker_out_of_time_leaves_its_last_whole_line(program: Any) -> None:
    outcome = harness.measure_in_process(program.go_on, {}, threads=1, timeout=2)
    assert outcome.values == {"n": 2}
    assert outcome.reason == "gave up after 2 s"


def test_tools_take_turns_to_and_fro_until_they_give_a_reason() -> None:
    asked: list[str] = []

    def measure(name: str) -> harness.Outcome:
        asked.append(name)
        return harness.Outcome({"n": len(asked)}, "no luck" if name == "b" else None)

    runs, reasons = harness.in_turns("abc", 2, measure, to_and_fro=True)
    assert "".join(asked) == "abcca"
    assert {name: [run.values["n"] for run in outcomes] for name, outcomes in runs.items()} == {
        "a": [1, 5],
        "b": [],
        "c": [3, 4],
    }
    assert reasons == {"b": "no luck"}


def test_a_tool_in_a_folder_of_its_own_is_measured_in_no_other_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BYTEMILL_BENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(harness.UnavailableError, match=r"tokenizers 1\.0\.0rc3 could not be fetched"):
        encoders.require_own("huggingface-1")


def run(case: str, *arguments: str | Path, folder: Path) -> dict[str, Any]:
    """Runs a case with its cache and results in `folder` and gives what it saved."""
    saved = folder / "saved.json"
    answer = subprocess.run(
        [sys.executable, "-m", "benchmarks", case, *arguments, "--json", saved],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"BYTEMILL_BENCH_CACHE": str(folder), "BYTEMILL_TEST_DATA": str(folder / "none")},
    )
    assert answer.returncode == 0, answer.stderr
    return json.loads(saved.read_text(encoding="utf-8"))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    from pydoc_data.topics import topics

    file = tmp_path / "topics.txt"
    file.write_text("".join(topics.values()), encoding="utf-8", newline="")
    return file


@pytest.mark.parametrize(
    "interfaces",
    [
        ("array", "batch array", "short list", "decode array"),
        pytest.param(
            ("array", "batch", "batch array", "files", "short list", "decode array", "decode list"),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["some", "all"],
)
def test_encoding_is_timed_beside_tiktoken_through_interfaces(
    text: Path, tmp_path: Path, interfaces: tuple[str, ...]
) -> None:
    options = ("--text", text, "--megabytes", "0.1", "--repeat", "1", "--vocab", "trained-400")
    chosen = ("--interfaces", ",".join(interfaces), "--tools", "bytemill,tiktoken")
    rows = run("encode", *options, *chosen, folder=tmp_path)["rows"]
    assert [(row["tool"], row["interface"]) for row in rows] == [
        (tool, interface) for interface in interfaces for tool in ("bytemill", "tiktoken")
    ]
    (missing,) = (row for row in rows if row["reason"])
    assert (missing["tool"], missing["interface"], missing["reason"]) == (
        "tiktoken",
        "batch array",
        "not offered",
    )
    rows.remove(missing)
    assert all(row["same_ids"] for row in rows)
    assert all(row["new_mb_per_s"] > 0 and row["again_mb_per_s"] > 0 and row["peak_mb"] > 1 for row in rows)
    assert next(row for row in rows if row["interface"] == "short list")["new_us"] > 0


def test_builds_take_turns_in_forks(text: Path, tmp_path: Path) -> None:
    chosen = ("--text", text, "--vocab", "trained-400", "--interface", "batch array")
    options = (*chosen, "--rounds", "2", "--turns", "1")
    rounds = run("turns", "1", "2", *options, folder=tmp_path)["rounds"]
    assert [len(cases) for cases in rounds] == [2, 2]
    assert all(case["wall"] > 0 and case["cpu"] > 0 for cases in rounds for case in cases)
    other = tmp_path / "other" / "bytemill"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("raise ImportError('another build')", encoding="utf-8")
    with pytest.raises(AssertionError, match="another build"):
        run("turns", "1", f"1@{other.parent}", *options, folder=tmp_path)
    for wrong, reason in (("1@nowhere", "nowhere holds no bytemill"), ("two", "'two' does not begin with")):
        with pytest.raises(AssertionError, match=reason):
            run("turns", wrong, folder=tmp_path)


def test_fingerprints_that_differ_from_an_earlier_run_are_named(text: Path, tmp_path: Path) -> None:
    options = ("--text", text, "--megabytes", "0.05", "--vocab", "trained,trained-400")
    hashes = run("fingerprints", *options, folder=tmp_path)["hashes"]
    assert {name.split(" | ")[1] for name in hashes} == {"merges", "pre-tokens", "trained", "trained-400"}
    before = tmp_path / "before.json"
    before.write_text(json.dumps({"megabytes": 0.05, "hashes": hashes}), encoding="utf-8")
    assert run("fingerprints", *options, "--compare", before, folder=tmp_path)["hashes"] == hashes
    name = next(name for name in hashes if name.endswith("offsets"))
    changed = {"megabytes": 0.05, "hashes": hashes | {name: "0" * 64}}
    before.write_text(json.dumps(changed), encoding="utf-8")
    with pytest.raises(AssertionError):
        run("fingerprints", *options, "--compare", before, folder=tmp_path)


def test_a_tool_with_other_ids_is_marked_and_its_times_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(_work: Any, request: dict[str, Any], *, threads: int, timeout: float = 1) -> Any:
        assert threads == 1
        assert timeout
        times = {"new_seconds": 1.0, "again_seconds": 0.5, "load_seconds": 0.1, "peak_bytes": 10}
        return harness.Outcome({"ids": request["tool"], "n_bytes": 10, "n_tokens": 1, "version": "1"} | times)

    monkeypatch.setattr(harness, "measure_in_process", measure)
    arguments = argparse.Namespace(tools=["bytemill", "tiktoken"], repeat=3, megabytes=None, limit=1)
    vocabulary = encoders.Vocabulary(Path(__file__), "gpt2")
    rows = encode.measure(arguments, vocabulary, [(Path(__file__), "list", 1)])
    assert [row["same_ids"] for row in rows] == [False, True]
    assert rows[0]["new_mb_per_s"] == 10 / 1e6


def test_documents_are_the_text(text: Path) -> None:
    whole = text.read_text(encoding="utf-8")
    documents = encode.documents_of(whole)
    assert "".join(documents) == whole
    assert all(len(document) >= 1000 for document in documents[:-1])
    assert {len(string) for string in encode.short_strings_of(whole)} == {100}


class TestHostileTexts:
    @pytest.mark.parametrize("n_bytes", [0, 1, 100, 10_000])
    def test_are_as_long_as_asked_and_the_same_for_a_seed(self, n_bytes: int) -> None:
        for name, make in generated.HOSTILE.items():
            text = make(n_bytes, 1)
            assert n_bytes - 18 < len(text.encode()) <= n_bytes, name
            assert text == make(n_bytes, 1)

    def test_run_and_are_held_to_the_limits(self, text: Path, tmp_path: Path) -> None:
        options = ("--texts", "a,random letters", "--megabytes", "0.01,0.02", "--tools", "bytemill,tiktoken")
        rows = run("hostile", *options, "--vocab", text, "--pattern", "gpt2", folder=tmp_path)["rows"]
        assert rows[0]["reason"] is not None, "the text is no rank file"
        ranks = tmp_path / "bytes.tiktoken"
        lines = (f"{base64.b64encode(bytes([byte])).decode()} {byte}\n" for byte in range(256))
        ranks.write_text("".join(lines), encoding="ascii")
        rows = run("hostile", *options, "--vocab", ranks, "--pattern", "gpt2", folder=tmp_path)["rows"]
        assert [(row["text"], row["tool"], row["same_ids"]) for row in rows] == [
            (name, tool, True) for name in ("a", "random letters") for tool in ("bytemill", "tiktoken")
        ]
        assert [size["n_tokens"] for size in rows[0]["sizes"]] == [10_000, 20_000]

    def test_growth_looks_at_doubled_sizes_that_take_long_enough(self) -> None:
        growth = limits.growth
        turns = {1: [1e-6] * 3, 2: [1e-2, 1e-2, 5e-2], 4: [3e-2, 5e-2, 5e-2, 9.0], 5: [9.0]}
        sizes = [{"n_bytes": n, "turns": seconds} for n, seconds in turns.items()]
        assert growth(sizes) == pytest.approx(3), "a slow turn of one size does not count"
        assert growth(sizes[:2]) is None

    def test_limits_that_are_broken_are_named(self) -> None:
        broken = limits.broken_limits
        row = {
            "reason": None,
            "sizes": [1],
            "growth": 2.0,
            "beyond_mb": 1,
            "same_ids": True,
            "times_toktok": 0.5,
        }
        assert broken(row) == []
        worse = {
            "growth": 2.5,
            "beyond_mb": 65,
            "same_ids": False,
            "reference": "tiktoken",
            "times_toktok": 1.5,
        }
        assert len(broken(row | worse)) == 4
        again = limits.is_worth_another_run
        slower = {"growth": 2.5, "times_toktok": 1.5}
        assert again(row | slower)
        assert not again(row)
        for other in ({"same_ids": False, "reference": "tiktoken"}, {"beyond_mb": 65}, {"reason": "gave up"}):
            assert not again(row | slower | other)


def test_training_is_timed_once_the_merges_are_those_of_hugging_face(text: Path, tmp_path: Path) -> None:
    options = ("--text", text, "--vocab-sizes", "1000", "--repeat", "1", "--threads", "1")
    rows = run("train", *options, "--tools", "bytemill,huggingface", folder=tmp_path)["rows"]
    assert [(row["tool"], row["reason"]) for row in rows] == [
        ("bytemill", None),
        ("bytemill, HF ties", None),
        ("huggingface", None),
    ]
    assert rows[1]["agreement"] == rows[2]["agreement"] == "same merges"
    assert all(row["n_merges"] == 744 and row["wall_seconds"] > 0 and row["peak_mb"] > 1 for row in rows)
