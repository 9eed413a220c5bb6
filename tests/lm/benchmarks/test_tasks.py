"""Items of each format become the prompts of lm-evaluation-harness, with their examples; other files are refused."""

import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from bytemill.errors import CheckpointError, CorpusError, RunConfigError
from bytemill.lm.benchmarks.evaluate import load_tasks, saved_score
from bytemill.lm.benchmarks.tasks import load_items
from bytemill.lm.multiple_choice import evaluate_multiple_choice
from tests.lm.conftest import Corpus

ROWS = {
    "abstract_algebra_dev.csv": '"1 + 1, in Z2?",0,1,2,3,A\n2 + 2?,1,2,3,4,D\n',
    "abstract_algebra_test.csv": '" What is\n1 * 1? ",0,1,2,3,B\n',
    "zoo_dev.csv": "Who barks?,cat,dog,cow,ant,B\n",
    "zoo_test.csv": "Who purrs?,cat,dog,cow,ant,A\n",
}


@pytest.fixture
def mmlu(tmp_path: Path) -> Path:
    for name, rows in ROWS.items():
        (tmp_path / name).write_text(rows)
    return tmp_path


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_questions_of_mmlu_follow_the_examples_of_their_subject(mmlu: Path):
    algebra, zoo = load_items("mmlu", mmlu, shots=1)
    assert algebra.introduction + algebra.context == (
        "The following are multiple choice questions (with answers) about abstract algebra.\n\n"
        "1 + 1, in Z2?\nA. 0\nB. 1\nC. 2\nD. 3\nAnswer: A\n\n"
        "What is\n1 * 1?\nA. 0\nB. 1\nC. 2\nD. 3\nAnswer:"
    )
    assert (algebra.endings, algebra.label, algebra.group) == (("A", "B", "C", "D"), 1, "abstract_algebra")
    assert (zoo.label, zoo.own_text) == (0, "Who purrs? cat")
    assert load_items("mmlu", mmlu / "zoo_test.csv", shots=1) == [zoo]
    generated = load_items("mmlu-answers", mmlu, shots=1)[1]
    assert (generated.context, generated.answer) == (zoo.context, "A")
    for folder in ("dev", "test"):  # as published
        (mmlu / folder).mkdir()
        for file in mmlu.glob(f"*_{folder}.csv"):
            file.rename(mmlu / folder / file.name)
    assert load_items("mmlu", mmlu, shots=1) == load_items("mmlu", mmlu / "test", shots=1) == [algebra, zoo]
    row = {"question": "Who purrs?", "choices": ["cat", "dog", "cow", "ant"], "answer": 0, "subject": "zoo"}
    (mmlu / "rows.jsonl.gz").write_bytes(gzip.compress(json.dumps(row).encode()))
    (mmlu / "zoo_test.csv.xz").write_bytes(lzma.compress(ROWS["zoo_test.csv"].encode()))
    plain = load_items("mmlu", mmlu / "test" / "zoo_test.csv")
    assert load_items("mmlu", mmlu / "rows.jsonl.gz") == load_items("mmlu", mmlu / "zoo_test.csv.xz") == plain


def test_both_forms_of_arc_and_parquet_give_the_same_items(tmp_path: Path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    labels, texts = ["1", "2", "3"], ["rain", "sand", "salt"]
    stem = {
        "stem": "What falls?",
        "choices": [{"text": t, "label": n} for n, t in zip(labels, texts, strict=True)],
    }
    own = {"id": "a", "answerKey": "3"}
    first = write_lines(tmp_path / "first.jsonl", [{**own, "question": stem}])
    row = {**own, "question": "What falls?", "choices": {"text": texts, "label": labels}}
    second = write_lines(tmp_path / "second.jsonl", [row])
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "third.parquet")
    (item,) = load_items("arc", first)
    assert (item.context, item.endings, item.label) == (
        "Question: What falls?\nAnswer:",
        ("rain", "sand", "salt"),
        2,
    )
    assert load_items("arc", second) == load_items("arc", tmp_path / "third.parquet") == [item]


def test_an_item_is_not_its_own_example(tmp_path: Path):
    rows = [{"question": f"{n} + 1?", "answer": f"It is #### {n + 1}"} for n in range(3)]
    path = write_lines(tmp_path / "train.jsonl", rows)
    first, _, third = load_items("gsm8k", path, shots=2, examples=path)
    shown = "Question: {}\nAnswer: It is #### {}\n\n"
    assert (
        first.context == shown.format("1 + 1?", 2) + shown.format("2 + 1?", 3) + "Question: 0 + 1?\nAnswer:"
    )
    assert third.context.startswith(shown.format("0 + 1?", 1) + shown.format("1 + 1?", 2))
    assert third.own_text == "2 + 1?"


@pytest.mark.parametrize(
    ("task", "content", "message"),
    [
        ("mmlu=x_test.csv", "a,b,c,d,e\n", r"x_test\.csv:1 is not a question of MMLU"),
        ("mmlu=x_test.csv", "q,b,c,d,e,A\nq,b,c,d,e,F\n", r":2 is not a question"),
        ("mmlu=x.jsonl", '{"question": "a", "choices": ["b"], "answer": 0}', "row 1 is not a question"),
        ("arc=x", '{"question": "a", "answerKey": "C", "choices": {"text": ["b"], "label": ["A"]}}', "row 1"),
        ("arc=x", '{"question": "a"}', "has no 'answerKey'"),
        ("gsm8k=x", '{"question": "a", "answer": "1"}', "has no examples that belong"),
        ("gsm8k=missing", "", "no such file"),
        ("mmlu=.", "", "has no files SUBJECT_test.csv"),
    ],
)
def test_files_of_another_format_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, content: str, message: str
):
    monkeypatch.chdir(tmp_path)
    if content:
        Path(task.partition("=")[2]).write_text(content)
    with pytest.raises(CorpusError, match=message):
        load_tasks([task], shots=2 * (task == "gsm8k=x"))


def test_tasks_need_a_known_name_and_a_file(mmlu: Path):
    for arguments, message in (
        ((["mnlu=x"], []), "no task 'mnlu'"),
        ((["mmlu"], []), "file is missing"),
        (([f"mmlu={mmlu}"], ["gsm8k=x"]), "there is no --task gsm8k"),
    ):
        with pytest.raises(RunConfigError, match=message):
            load_tasks(arguments[0], examples=arguments[1])
    files = [f"mmlu={mmlu / name}" for name in ("zoo_test.csv", "abstract_algebra_test.csv")]
    assert [task.section for task in load_tasks(files)] == [
        "mmlu zoo_test.csv",
        "mmlu abstract_algebra_test.csv",
    ]


def test_a_file_holds_the_results_of_several_tasks(mmlu: Path, model: Any, corpus: Corpus):
    (both,) = load_tasks([f"mmlu={mmlu}"])
    first, second = (load_tasks([f"mmlu={mmlu}"], limit=1)[0], both)
    results = mmlu / "results.jsonl"
    options: dict[str, Any] = {"results": results}
    own = evaluate_multiple_choice(model, corpus.tokenizer, second.items, task="mmlu", **options)
    other = evaluate_multiple_choice(model, corpus.tokenizer, first.items, task="other", **options)
    assert evaluate_multiple_choice(model, corpus.tokenizer, second.items, task="mmlu", **options) == own
    assert len(results.read_text().splitlines()) == 5 + 1  # the last call begins its task again
    assert saved_score(both, results) == own
    assert other.n_items == 1
    with pytest.raises(CheckpointError, match="of other items"):
        saved_score(first, results)
    results.write_text("".join(results.read_text().splitlines(keepends=True)[:2]))
    with pytest.raises(CheckpointError, match="1 of 2 items"):
        saved_score(both, results)
