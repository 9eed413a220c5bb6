"""Curation as a whole: the same bytes however it runs and whatever interrupts it, and thresholds that change later."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import zstandard
from tests.curation.crawl import page, write_archive
from tests.support.s3_server import S3Server

from bytemill.corpus import Corpus
from bytemill.curation.recipe import Recipe
from bytemill.curation.run import curate, rethreshold
from bytemill.data.executors import open_executor
from bytemill.data.executors.inline import InlineExecutor
from bytemill.errors import BytemillError, ClusterError, CorpusError, CurationError
from bytemill.tokenizer import Tokenizer

RECIPE: dict[str, Any] = {
    "step": [
        {"use": "mask"},
        {"use": "rules", "remove": {"short": "words < 20", "odd": "mean_word_length > 9"}},
        {"use": "lines", "min_bytes": 10},
        {"use": "rules", "name": "late", "remove": {"tiny": "words < 5"}},
        {"use": "near", "threshold": 0.7},
    ]
}
UNIT_BYTES = 40_000


def documents(n: int = 300) -> list[str]:
    """Texts of random words: some short, some copies, some with a line that many have, some with an address."""
    source = random.Random("documents")
    words = ["".join(source.choices("abcdefghij", k=source.randrange(2, 9))) for _ in range(400)]
    texts: list[str] = []
    for number in range(n):
        if number % 10 == 7:
            text = texts[-3] + " " + source.choice(words)
        else:
            text = " ".join(source.choices(words, k=source.randrange(10, 120)))
        if number % 4 == 1:
            text += "\nSubscribe to our newsletter today"
        if number % 5 == 2:
            text += f" mail{number}@example.org"
        texts.append(text)
    return texts


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("inputs")
    texts = documents()
    for number in range(2):
        rows = [json.dumps({"text": text}) for text in texts[number * 150 : number * 150 + 150]]
        (folder / f"{number}.jsonl").write_text("\n".join(rows) + "\n")
    return [str(folder / f"{number}.jsonl") for number in range(2)]


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a result."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "measured" not in path.relative_to(folder).parts and path.name != ".lock"
    }


def rows(folder: Path, which: str) -> list[dict[str, Any]]:
    """The documents of a result."""
    found: list[dict[str, Any]] = []
    for path in sorted((folder / which).glob("*.jsonl.zst")):
        with zstandard.open(path, "rt", encoding="utf-8") as file:
            found += [json.loads(line) for line in file]
    return found


def run(inputs: list[str], folder: Path, recipe: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return curate(
        InlineExecutor(),
        Recipe.from_dict(recipe or RECIPE),
        Corpus(inputs),
        folder,
        unit_bytes=more.pop("unit_bytes", UNIT_BYTES),
        **more,
    )


@pytest.fixture(scope="module")
def expected(inputs: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result of one process without interruption."""
    folder = tmp_path_factory.mktemp("expected") / "clean"
    run(inputs, folder)
    return folder


def test_every_document_is_kept_or_removed_with_its_measurements(expected: Path, inputs: list[str]) -> None:
    kept, removed = rows(expected, "kept"), rows(expected, "removed")
    assert len(kept) + len(removed) == 300
    assert sorted(row["id"] for row in kept + removed) == sorted({row["id"] for row in kept + removed})
    assert {row["source"] for row in kept} == set(inputs)
    for row in kept:
        assert list(row["measurements"]) == ["mask", "rules", "lines", "late", "near"]
        assert row["measurements"]["rules"]["words"] >= 20
        assert "@" not in row["text"]
    by = {(row["removed_by"]["step"], rule) for row in removed for rule in row["removed_by"]["rules"]}
    assert by == {("rules", "short"), ("near", "near_duplicate")}
    n_with_line = sum("newsletter" in row["text"] for row in kept)
    assert n_with_line == 1  # the first document keeps the line
    ids = {row["id"] for row in kept}
    for row in removed:
        if row["removed_by"]["step"] == "near":
            assert row["measurements"]["near"]["duplicate_of"] in ids
            assert row["measurements"]["near"]["similarity"] >= 0.7


def test_the_funnel_adds_up(expected: Path) -> None:
    result = json.loads((expected / "curation.json").read_text())
    funnel, kept, removed = result["funnel"], rows(expected, "kept"), rows(expected, "removed")
    assert (funnel["documents"], funnel["kept_documents"]) == (300, len(kept))
    assert funnel["kept_bytes"] == sum(len(row["text"].encode()) for row in kept)
    assert funnel["bytes"] == sum(len(text.encode()) for text in documents())
    before = 300
    for name, step in funnel["steps"].items():
        assert step["documents"] == before
        n_removed = sum(row["removed_by"]["step"] == name for row in removed)
        before = step["kept_documents"]
        assert step["documents"] - before == n_removed
        assert sum(rule["alone_documents"] for rule in step["rules"].values()) <= n_removed
    assert before == len(kept)
    assert [each["name"] for each in result["inputs"]] == sorted({row["source"] for row in kept})
    assert all(len(each["sha256"]) == 64 for each in result["inputs"])


def test_processes_write_what_one_process_writes(expected: Path, inputs: list[str], tmp_path: Path) -> None:
    with open_executor("local", num_workers=2) as executor:
        corpus = Corpus(inputs)
        curate(executor, Recipe.from_dict(RECIPE), corpus, tmp_path / "clean", unit_bytes=UNIT_BYTES)
    assert contents(tmp_path / "clean") == contents(expected)


@pytest.mark.slow
def test_ray_writes_what_one_process_writes(expected: Path, inputs: list[str], tmp_path: Path) -> None:
    with open_executor("ray", num_workers=2) as executor:
        corpus = Corpus(inputs)
        curate(executor, Recipe.from_dict(RECIPE), corpus, tmp_path / "clean", unit_bytes=UNIT_BYTES)
    assert contents(tmp_path / "clean") == contents(expected)


@pytest.mark.slow
def test_a_store_gets_what_a_folder_gets(
    expected: Path, inputs: list[str], tmp_path: Path, s3: S3Server
) -> None:
    url = f"{s3.bucket()}/clean"
    result = run(inputs, url)  # type: ignore[arg-type]
    from bytemill.storage import StoreFolder

    store = StoreFolder(url)
    found = {name: store.get(name).data for name in store.list() if not name.startswith("measured/")}  # type: ignore[union-attr]
    assert found == contents(expected)
    again = rethreshold(InlineExecutor(), Recipe.from_dict(RECIPE), url)  # type: ignore[arg-type]
    assert again == result


class Interrupted(Exception):  # noqa: N818
    """Raised by a progress callback."""


def test_an_interrupted_run_continues_wherever_it_stopped(
    expected: Path, inputs: list[str], tmp_path: Path
) -> None:
    n_calls = 0
    for stop_at in range(1, 200):
        n_calls = 0

        def stop(_: object, stop_at: int = stop_at) -> None:
            nonlocal n_calls
            n_calls += 1
            if n_calls == stop_at:
                raise Interrupted

        try:
            run(inputs, tmp_path / "clean", progress=stop)
        except Interrupted:
            continue
        break
    else:
        pytest.fail("the run does not end")
    assert contents(tmp_path / "clean") == contents(expected)


def command(inputs: list[str], folder: Path, recipe: Path, *more: str) -> list[str]:
    return [
        *(sys.executable, "-m", "bytemill", "data", "curate", str(recipe), *inputs, "-o", str(folder)),
        *("--unit-size", str(UNIT_BYTES), "-q", *more),
    ]


def write_recipe(path: Path, recipe: dict[str, Any]) -> Path:
    lines: list[str] = []
    for step in recipe["step"]:
        lines.append("[[step]]")
        lines += [
            f"{key} = {json.dumps(value)}" for key, value in step.items() if not isinstance(value, dict)
        ]
        for key, value in step.items():
            if isinstance(value, dict):
                lines += [f"[step.{key}]", *(f"{name} = {json.dumps(rule)}" for name, rule in value.items())]
    path.write_text("\n".join(lines))
    return path


def killed_until_done(arguments: list[str], n_kills: int, seconds: float) -> None:
    """Run a command that is killed at random moments, and at last is not."""
    source = random.Random(0)
    for _ in range(n_kills):
        process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(source.uniform(0.2, seconds))
        except subprocess.TimeoutExpired:
            process.kill()
        process.wait()
    subprocess.run(arguments, check=True, timeout=120)


@pytest.mark.parametrize("more", [(), ("--jobs", "2")])
@pytest.mark.parametrize("n_kills", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_a_killed_run_continues_with_the_same_bytes(
    n_kills: int, more: tuple[str, ...], expected: Path, inputs: list[str], tmp_path: Path
) -> None:
    recipe = write_recipe(tmp_path / "recipe.toml", RECIPE)
    arguments = command(inputs, tmp_path / "clean", recipe, *more)
    killed_until_done(arguments, n_kills, 3.0)
    assert contents(tmp_path / "clean") == contents(expected)


@pytest.mark.slow
def test_a_killed_run_on_ray_continues_with_the_same_bytes(
    expected: Path, inputs: list[str], tmp_path: Path
) -> None:
    recipe = write_recipe(tmp_path / "recipe.toml", RECIPE)
    arguments = command(inputs, tmp_path / "clean", recipe, "--executor", "ray", "--num-workers", "2")
    killed_until_done(arguments, 5, 15.0)
    assert contents(tmp_path / "clean") == contents(expected)


def test_ctrl_c_ends_a_run_within_a_second(inputs: list[str], tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path / "recipe.toml", RECIPE)
    many = []
    for number in range(20):
        shutil.copy(inputs[0], tmp_path / f"{number}.jsonl")
        many.append(str(tmp_path / f"{number}.jsonl"))
    process = subprocess.Popen(command(many, tmp_path / "clean", recipe), stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "clean" / "measured" / "plan.json").exists():
        time.sleep(0.01)
    process.send_signal(2)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "run the same command again" in errors


def test_a_finished_run_is_left_alone(expected: Path, inputs: list[str]) -> None:
    before = contents(expected)
    notes: list[str] = []
    run(inputs, expected, note=notes.append)
    assert ["nothing to do" in note for note in notes] == [True]
    assert contents(expected) == before


def test_other_settings_are_refused_unless_the_output_may_be_replaced(
    inputs: list[str], tmp_path: Path
) -> None:
    run(inputs, tmp_path / "clean", {"step": [{"use": "mask"}]})
    with pytest.raises(CurationError, match="another curation"):
        run(inputs, tmp_path / "clean", {"step": [{"use": "mask", "urls": True}]})
    run(inputs[:1], tmp_path / "clean", {"step": [{"use": "mask", "urls": True}]}, overwrite=True)
    run(inputs[:1], tmp_path / "other", {"step": [{"use": "mask", "urls": True}]})
    assert contents(tmp_path / "clean") == contents(tmp_path / "other")
    (tmp_path / "other" / "curation.json").unlink()
    with pytest.raises(ClusterError, match="unfinished work with other settings"):
        run(inputs[:1], tmp_path / "other", {"step": [{"use": "mask"}]})


def test_results_that_were_damaged_after_the_interruption_are_made_again(
    expected: Path, inputs: list[str], tmp_path: Path
) -> None:
    run(inputs, tmp_path / "clean")
    (tmp_path / "clean" / "curation.json").unlink()
    units = tmp_path / "clean" / "measured" / "units"
    for path in sorted(units.glob("*.pages"))[:2]:
        path.write_bytes(path.read_bytes()[:-5] + b"xxxxx")
    (tmp_path / "clean" / "kept" / "part-00001.jsonl.zst").write_bytes(b"")
    notes: list[str] = []
    run(inputs, tmp_path / "clean", note=notes.append)
    assert any("damaged" in note for note in notes)
    assert contents(tmp_path / "clean") == contents(expected)


def changed(**rules: str) -> dict[str, Any]:
    recipe = json.loads(json.dumps(RECIPE))
    recipe["step"][1]["remove"].update(rules)
    return recipe


def without_removed(result: bytes) -> dict[str, Any]:
    """A result without the hashes of removed documents, whose texts are those of the last step that measured them."""
    document = json.loads(result)
    document["outputs"] = [output for output in document["outputs"] if output["file"].startswith("kept")]
    return document


def test_thresholds_change_as_if_the_corpus_had_been_read_again(inputs: list[str], tmp_path: Path) -> None:
    # Without the step that cuts lines, whose result depends on what reaches it.
    first = {"step": [RECIPE["step"][number] for number in (0, 4, 1)]}
    first["step"].append({"use": "mask", "name": "late", "urls": True})
    second = json.loads(json.dumps(first))
    second["step"][2]["remove"] = {"short": "words < 40", "fair": "mean_word_length < 4"}
    second["step"][1]["threshold"] = 0.6
    run(inputs, tmp_path / "a", first)
    run(inputs, tmp_path / "b", second)
    before = contents(tmp_path / "a")
    for path in inputs:
        Path(path).rename(path + ".away")  # they are not read
    try:
        rethreshold(InlineExecutor(), Recipe.from_dict(second), tmp_path / "a")
        now = contents(tmp_path / "a")
        assert {name for name in now if name.startswith("kept")} == {
            n for n in before if n.startswith("kept")
        }
        assert rows(tmp_path / "a", "kept") == rows(tmp_path / "b", "kept")
        other = contents(tmp_path / "b")
        for name in now:
            if name.startswith("kept"):
                assert now[name] == other[name]
        assert without_removed(now["curation.json"]) == without_removed(other["curation.json"])
        gone, expected = rows(tmp_path / "a", "removed"), rows(tmp_path / "b", "removed")
        assert [(row["id"], row["removed_by"]) for row in gone] == [
            (row["id"], row["removed_by"]) for row in expected
        ]
        rethreshold(InlineExecutor(), Recipe.from_dict(first), tmp_path / "a")
        assert contents(tmp_path / "a") == before
    finally:
        for path in inputs:
            Path(path + ".away").rename(path)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (changed(short="words < 10"), "passes the steps before|now reaches|in another way"),
        (changed(short="words < 110"), "in another way"),
        (changed(short="alphabetic_words + punctuated_lines < 1"), "punctuated_lines was not measured"),
        (
            {"step": [{"use": "mask", "urls": True}, *RECIPE["step"][1:]]},
            "measures something else: step.*urls",
        ),
        ({"step": RECIPE["step"][1:]}, "measures something else"),
    ],
)
def test_what_was_not_measured_is_refused_and_nothing_changes(
    recipe: dict[str, Any], message: str, expected: Path, inputs: list[str], tmp_path: Path
) -> None:
    shutil.copytree(expected, tmp_path / "clean")
    before = contents(tmp_path / "clean")
    with pytest.raises(CurationError, match=message):
        rethreshold(InlineExecutor(), Recipe.from_dict(recipe), tmp_path / "clean")
    assert contents(tmp_path / "clean") == before


def test_with_all_documents_measured_thresholds_may_become_lower(inputs: list[str], tmp_path: Path) -> None:
    def recipe(words: int) -> Recipe:
        steps = [{"use": "rules", "remove": {"short": f"words < {words}"}}, {"use": "mask"}]
        return Recipe.from_dict({"measure": "all", "step": steps})

    for words in (50, 10):
        curate(InlineExecutor(), recipe(words), Corpus(inputs), tmp_path / str(words), unit_bytes=UNIT_BYTES)
    rethreshold(InlineExecutor(), recipe(10), tmp_path / "50")
    assert contents(tmp_path / "50") == contents(tmp_path / "10")


def test_archives_and_pages_are_extracted_with_their_addresses(tmp_path: Path) -> None:
    archive = tmp_path / "crawl.warc.gz"
    story = "Once upon a time there was a fox who lived in the forest.\nIt had many friends."
    write_archive(archive, [(f"http://example.org/{n}", page(f"Page {n}", story)) for n in range(3)])
    write_archive(archive, [("http://example.org/doc", b"%PDF-1.7 ...")], "application/pdf")
    write_archive(archive, [("http://example.org/image", b"\x89PNG")], "image/png")
    write_archive(archive, [("http://example.org/empty", b"<html><body></body></html>")])
    write_archive(archive, [("http://example.org/plain", b"Plain words.")], "text/plain; charset=utf-8")
    write_archive(archive, [("http://example.org/gone", page("Gone", "x"))], status="404 Not Found")
    (tmp_path / "own.html").write_bytes(page("Own", story, "utf-16"))
    result = run(
        [str(archive), str(tmp_path / "own.html")], tmp_path / "clean", {"step": [{"use": "extract"}]}
    )
    kept, removed = rows(tmp_path / "clean", "kept"), rows(tmp_path / "clean", "removed")
    assert [row.get("url") for row in kept] == [
        *(f"http://example.org/{n}" for n in range(3)),
        "http://example.org/plain",
        None,
    ]
    assert [row.get("title") for row in kept] == ["Page 0", "Page 1", "Page 2", None, "Own"]
    assert kept[0]["text"] == "Page 0\n\n" + story.replace("\n", "\n\n")
    assert kept[3]["text"] == "Plain words."
    assert [row["removed_by"]["rules"] for row in removed] == [["pdf"], ["type"], ["empty"]]
    assert result["funnel"]["documents"] == 8
    plain = b"".join(bytes(batch.data) for batch in Corpus(str(archive)).read()).decode()
    assert plain.startswith("Home About us\n\nPage 0")
    assert "Plain words" not in plain


def test_inputs_that_hold_no_text_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "paper.pdf").write_bytes(b"%PDF-1.7")
    with pytest.raises((CurationError, CorpusError), match=r"paper\.pdf is a PDF document"):
        run([str(tmp_path / "paper.pdf")], tmp_path / "clean", {"step": [{"use": "extract"}]})
    (tmp_path / "page.html").write_bytes(page("A", "b"))
    with pytest.raises(CurationError, match=r"page\.html holds web pages, and the recipe does not extract"):
        run([str(tmp_path / "page.html")], tmp_path / "clean", {"step": [{"use": "mask"}]})
    write_archive(tmp_path / "crawl.gz", [("http://example.org/", page("A", "b"))])
    with pytest.raises(CurationError, match=r"crawl\.gz holds web pages"):
        run([str(tmp_path / "crawl.gz")], tmp_path / "clean", {"step": [{"use": "mask"}]})


def test_weights_and_samples_of_archives_are_refused(inputs: list[str], tmp_path: Path) -> None:
    recipe = Recipe.from_dict({"step": [{"use": "extract"}]})
    with pytest.raises(CurationError, match="reads every document once"):
        curate(InlineExecutor(), recipe, Corpus(inputs, weights={inputs[0]: 2}), tmp_path / "clean")
    (tmp_path / "page.html").write_bytes(page("A", "b"))
    with pytest.raises(CurationError, match=r"page\.html is an archive or a page"):
        curate(InlineExecutor(), recipe, Corpus(tmp_path / "page.html", sample=0.5), tmp_path / "clean")
    sampled = curate(InlineExecutor(), recipe, Corpus(inputs, sample=0.5), tmp_path / "clean")
    assert 100 < sampled["funnel"]["documents"] < 200


def test_a_damaged_archive_names_its_record(tmp_path: Path) -> None:
    archive = tmp_path / "crawl.warc"
    write_archive(archive, [("http://example.org/", page("A", "long text " * 100))])
    archive.write_bytes(archive.read_bytes()[:-300])
    with pytest.raises(CorpusError, match=r"crawl\.warc: record 1 is damaged"):
        run([str(archive)], tmp_path / "clean", {"step": [{"use": "extract"}]})


def test_near_duplicates_that_would_empty_an_input_stop_the_run(tmp_path: Path) -> None:
    text = " ".join(documents(1)[0].split() * 2)
    (tmp_path / "copies.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for _ in range(10)))

    def recipe(**more: float) -> dict[str, Any]:
        return {"step": [{"use": "near", **more}]}

    with pytest.raises(CurationError, match=r"copies\.jsonl: 9 of 10 documents would be removed"):
        run([str(tmp_path / "copies.jsonl")], tmp_path / "clean", recipe())
    result = run([str(tmp_path / "copies.jsonl")], tmp_path / "other", recipe(max_removed=1.0))
    assert result["funnel"]["kept_documents"] == 1


def test_near_duplicates_are_found_by_the_ids_of_a_tokenizer(inputs: list[str], tmp_path: Path) -> None:
    Tokenizer({byte: bytes([byte]) for byte in range(256)}, []).save(tmp_path / "bytes.json")
    step = {"use": "near", "tokenizer": str(tmp_path / "bytes.json"), "n": 20, "threshold": 0.7}
    result = run(inputs, tmp_path / "clean", {"step": [step]})
    assert 20 <= result["funnel"]["documents"] - result["funnel"]["kept_documents"] <= 30
    assert set(result["identity"]["steps"]["near"]) == {"tokenizer"}
    with pytest.raises(BytemillError, match="missing"):
        run(inputs, tmp_path / "other", {"step": [{"use": "near", "tokenizer": "missing.json"}]})


@pytest.mark.skipif(os.name != "posix", reason="platform: resident memory is read from /proc")
@pytest.mark.slow
def test_memory_does_not_grow_with_the_corpus(inputs: list[str], tmp_path: Path) -> None:
    peaks: list[int] = []
    recipe = write_recipe(tmp_path / "recipe.toml", {"step": [RECIPE["step"][0], RECIPE["step"][1]]})
    for n_copies in (20, 200):
        path = tmp_path / f"{n_copies}.jsonl"
        path.write_text(Path(inputs[0]).read_text() * n_copies)
        code = (
            "import resource, sys; from bytemill.cli import main\n"
            f"sys.argv = {['bytemill', *command([str(path)], tmp_path / f'o{n_copies}', recipe)[3:]]!r}\n"
            "try: main()\nexcept SystemExit: pass\n"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        )
        code = code.replace(f"'{UNIT_BYTES}'", "'1GB'")
        done = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=300
        )
        peaks.append(int(done.stdout.split()[-1]))
    assert peaks[1] < peaks[0] * 1.5
