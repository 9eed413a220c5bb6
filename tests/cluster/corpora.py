"""Corpora, an executor within this process, and comparisons of folders, for the tests of the cluster."""

from __future__ import annotations

import gzip
import json
import pickle
from collections import deque
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

import bytemill as bm
from bytemill.data.executors.encode import encode_corpus
from bytemill.data.executors.executor import Done
from bytemill.datasets import DECLARATION

if TYPE_CHECKING:
    from pathlib import Path

    from bytemill.data.executors.executor import Task
    from bytemill.data.manifest import Manifest

EOT = "<|endoftext|>"


class InlineExecutor:
    """Runs tasks in this process, the last submitted first; what they take and return is pickled."""

    num_workers = 3
    description = "this process"

    def __init__(self) -> None:
        self._context: Any = None
        self._waiting: deque[tuple[int, Any, bytes]] = deque()
        self._n_submitted = 0

    def set_context(self, context: Any) -> None:
        self._context = pickle.loads(pickle.dumps(context))

    def submit(self, task: Task, item: Any) -> int:
        self._n_submitted += 1
        self._waiting.append((self._n_submitted, self._context, pickle.dumps((task, item))))
        return self._n_submitted

    def wait(self, seconds: float) -> list[Done]:
        if not self._waiting:
            return []
        handle, context, data = self._waiting.pop()
        task, item = pickle.loads(data)
        try:
            return [Done(handle, pickle.loads(pickle.dumps(task(context, item))))]
        except Exception as error:
            return [Done(handle, error=error)]

    def cancel(self, handle: int) -> None:
        self._waiting = deque(each for each in self._waiting if each[0] != handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._waiting.clear()


def encode_by_units(tok: bm.Tokenizer, inputs: Any, out: str | Path, **options: Any) -> Manifest:
    """Encode a corpus on an `InlineExecutor`."""
    with InlineExecutor() as executor:
        return encode_corpus(executor, tok, inputs, out, **options)


def tokenizer() -> bm.Tokenizer:
    """A tokenizer of 600 tokens."""
    names = [f"udhr_{code}.txt" for code in ("eng", "fra", "jpn")]
    return bm.train([DECLARATION / name for name in names], 600, special_tokens=[EOT, "<s>"])


def mixed_corpus(folder: Path) -> list[Path]:
    """Write files of many formats: lines, rows, one document each, compressed, empty."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(DECLARATION.glob("*.txt"))[:8]]
    paragraphs = [[line for line in text.split("\n") if line] for text in texts]
    lines = folder / "a.jsonl"
    lines.write_text("".join(json.dumps({"text": line}) + "\n" for line in paragraphs[0] + ["", EOT]))
    table = folder / "b.parquet"
    pq.write_table(pa.table({"text": paragraphs[1]}), table, row_group_size=7)
    packed = folder / "c.jsonl.gz"
    packed.write_bytes(
        gzip.compress(
            "".join(json.dumps({"text": line}) + "\n" for line in paragraphs[2]).encode(), 1, mtime=0
        )
    )
    whole = folder / "d.txt"
    whole.write_text("\ufeff" + texts[3] + f" {EOT} " + texts[4], encoding="utf-8")
    tiny = [folder / f"e{number}.txt" for number in range(5)]
    for number, path in enumerate(tiny):
        path.write_text(paragraphs[5][number])
    (folder / "f.txt").write_text("")
    return [lines, table, packed, whole, *tiny, folder / "f.txt"]


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the content of all files in a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
