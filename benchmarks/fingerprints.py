"""Hashes of everything that the core computes from the benchmark texts, so that two builds can be compared.

    python benchmarks/fingerprints.py --json before.json
    python benchmarks/fingerprints.py --compare before.json [--text FILE]... [--vocab gpt2,cl100k,o200k,trained]

Every text is pre-tokenized, encoded and decoded with every vocabulary on each number of threads, through arrays,
lists, batches, files and streams, and a tokenizer is trained on it. "trained" is a vocabulary learnt from the first
text. A hash is SHA-256 of the values, whatever integer type they come in. The exit status is 1 if a hash differs from
the one in the file to compare with, or if two interfaces give different ids for the same text. To take the hashes of
another build, set PYTHONPATH to its folder `python`.
"""

import argparse
import functools
import hashlib
import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import harness
from encode import standing_texts
from encode_worker import documents_of
from vocabularies import vocabulary_of

TRAINED_TOKENS = 32_000
LIST_CHARACTERS = 10_000_000
"""Lists, iterators and pre-token boundaries are Python objects: a part of the text is enough."""
N_FILES = 8
STREAM_BYTES = 1_000_003
"""Odd, so that pieces end inside characters."""


def digest_of_ids(parts: Sequence[Any]) -> str:
    """SHA-256 of ids in one or more arrays or lists, as 32-bit numbers."""
    import numpy as np

    digest = hashlib.sha256()
    for part in parts:
        digest.update(np.ascontiguousarray(part, "<u4").data)
    return digest.hexdigest()


def digest_of_offsets(offsets: Any) -> str:
    """SHA-256 of offsets as 64-bit numbers."""
    import numpy as np

    return hashlib.sha256(np.ascontiguousarray(offsets, "<i8").data).hexdigest()


def digest_of_merges(merges: Sequence[tuple[bytes, bytes]]) -> str:
    """SHA-256 of merges in their order."""
    return hashlib.sha256(repr([(bytes(left), bytes(right)) for left, right in merges]).encode()).hexdigest()


def streamed(tokenizer: Any, data: bytes, threads: int) -> Iterator[Any]:
    """Arrays of ids of a text that arrives in pieces."""
    stream = tokenizer.core.stream("none", "strict", threads)
    for start in range(0, len(data), STREAM_BYTES):
        yield stream.feed(data[start : start + STREAM_BYTES])
    yield stream.finish()


def files_of(data: bytes, folder: Path) -> list[Path]:
    """The text in files that end at line ends."""
    paths: list[Path] = []
    start = 0
    for number in range(N_FILES):
        end = data.find(b"\n", len(data) * (number + 1) // N_FILES - 1) + 1 or len(data)
        paths.append(folder / f"{number}.txt")
        paths[-1].write_bytes(data[start:end])
        start = max(start, end)
    return paths


def encoding_hashes(tokenizer: Any, text: str, threads: int) -> Iterator[tuple[str, str]]:
    """What is hashed, and its hash, for one text, vocabulary and number of threads.

    Everything whose name begins with "ids" is of the whole text and has to be the same.
    """
    options: dict[str, Any] = {"allowed_special": "none", "num_threads": threads}
    data = text.encode("utf-8")
    ids = tokenizer.encode_to_numpy(text, **options)
    yield "ids, array", digest_of_ids([ids])
    yield "decoded bytes", hashlib.sha256(tokenizer.decode_bytes(ids)).hexdigest()
    yield "ids, again", digest_of_ids([tokenizer.encode_to_numpy(text, **options)])
    yield "ids, stream", digest_of_ids(list(streamed(tokenizer, data, threads)))
    encoded, offsets = tokenizer.core.encode_with_spans(text, "none", threads)
    yield "ids, with offsets", digest_of_ids([encoded])
    yield "offsets", digest_of_offsets(offsets)
    del encoded, offsets
    documents = documents_of(text)
    rows = tokenizer.encode_batch(documents, **options)
    yield "batch of documents", digest_of_ids(rows)
    joined, ends = tokenizer.encode_batch_to_numpy(documents, **options)
    yield "batch to one array", digest_of_ids([joined])
    yield "ends of the batch", digest_of_offsets(ends)
    with tempfile.TemporaryDirectory() as folder:
        paths = files_of(data, Path(folder))
        yield "files", digest_of_ids(tokenizer.encode_files(paths, **options))
    part = text[:LIST_CHARACTERS]
    listed = tokenizer.encode(part, **options)
    yield "list of a part", digest_of_ids([listed])
    yield "decoded list", hashlib.sha256(tokenizer.decode(listed).encode()).hexdigest()
    if threads == 1:
        pieces = part.splitlines(keepends=True)
        yield "iterator over a part", digest_of_ids([list(tokenizer.encode_iterable(pieces))])
        counted = tokenizer.count(text, allowed_special="none")
        yield "number of tokens", hashlib.sha256(str(counted).encode()).hexdigest()


def pretoken_hashes(text: str) -> Iterator[tuple[str, str]]:
    """Name of a pattern, and the hash of the pre-token boundaries of a part of the text."""
    core = harness.require("bytemill._core")
    for pattern in core.NAMED_PATTERNS:
        yield pattern, digest_of_offsets(core.pretoken_spans(text[:LIST_CHARACTERS], pattern))


class Hashes:
    """All hashes by text, vocabulary, threads and what they are of, printed as they come."""

    def __init__(self, before: dict[str, str]) -> None:
        self.before = before
        self.found: dict[str, str] = {}
        self.n_different = 0

    def add(self, digest: str, *what: str) -> None:
        """One more; it is printed with a remark where there is something to compare it with."""
        name = " | ".join(what)
        old = self.before.get(name)
        self.found[name] = digest
        self.n_different += old is not None and old != digest
        remark = "" if not self.before else "new" if old is None else "same" if old == digest else "DIFFERENT"
        print(f"{digest[:16]}  {remark:<9}  {name}".rstrip(), flush=True)

    def disagreements(self) -> list[str]:
        """Texts and vocabularies for which the interfaces gave more than one sequence of ids."""
        groups: dict[str, set[str]] = {}
        for name, digest in self.found.items():
            fields = name.split(" | ")
            if fields[-1].startswith("ids"):
                groups.setdefault(" | ".join(fields[:2]), set()).add(digest)
        return [name for name, digests in groups.items() if len(digests) > 1]


def loader_of(name: str, texts: Sequence[Path], train: Callable[[], Any]) -> Callable[[], Any]:
    """A function that makes a new tokenizer of a vocabulary each time: one that has not encoded anything."""
    bytemill = harness.require("bytemill")
    if name == "trained":
        spec = train().to_spec()
        return lambda: bytemill.Tokenizer.from_spec(spec)
    vocabulary = vocabulary_of(name, None, texts)
    return lambda: bytemill.Tokenizer.load(vocabulary.path, pattern=vocabulary.pattern, special_tokens={})


def main() -> int:
    parser = argparse.ArgumentParser(description="Hash what the core computes, to compare two builds.")
    parser.add_argument("--text", type=Path, action="append", help="text, repeatable (those of corpus.py)")
    parser.add_argument(
        "--megabytes", type=float, default=0, help="first 10^6 bytes used, 0 for all (%(default)s)"
    )
    parser.add_argument(
        "--vocab", default="gpt2,cl100k,o200k,trained", help="names or rank files (%(default)s)"
    )
    parser.add_argument("--threads", default="1,2", help="numbers of threads (%(default)s)")
    parser.add_argument("--compare", type=Path, help="file that an earlier run has saved")
    parser.add_argument("--json", type=Path, help="file for the results (a new one in benchmarks/results)")
    arguments = parser.parse_args()
    texts: list[Path] = arguments.text or standing_texts()
    if not texts:
        parser.error("there is no text: run benchmarks/corpus.py first, or give --text")
    before: dict[str, str] = {}
    if arguments.compare:
        saved = json.loads(arguments.compare.read_text(encoding="utf-8"))
        if saved["megabytes"] != arguments.megabytes:
            parser.error(f"{arguments.compare} was made with --megabytes {saved['megabytes']:g}")
        before = saved["hashes"]
    hashes = Hashes(before)
    n_bytes = int(arguments.megabytes * 1e6) or None
    threads_tried = [int(number) for number in arguments.threads.split(",")]
    bytemill = harness.require("bytemill")

    @functools.cache
    def trained(path: Path, threads: int) -> Any:
        text = harness.read_text(path, n_bytes)
        return bytemill.train_from_iterator([text], TRAINED_TOKENS, [], pattern="gpt2", num_threads=threads)

    for path, threads in itertools.product(texts, threads_tried):
        hashes.add(digest_of_merges(trained(path, threads).merges), path.name, "merges", f"{threads} threads")
    loaders = {
        name: loader_of(name, texts, functools.partial(trained, texts[0], threads_tried[0]))
        for name in arguments.vocab.split(",")
    }
    for path in texts:
        text = harness.read_text(path, n_bytes)
        for pattern, digest in pretoken_hashes(text):
            hashes.add(digest, path.name, "pre-tokens", pattern)
        for (name, load), threads in itertools.product(loaders.items(), threads_tried):
            for what, digest in encoding_hashes(load(), text, threads):
                hashes.add(digest, path.name, name, f"{threads} threads", what)
    missing = sorted(before.keys() - hashes.found.keys())
    for name in missing:
        print(f"not computed by this run: {name}")
    for name in hashes.disagreements():
        print(f"interfaces or numbers of threads disagree: {name}")
    results = {"megabytes": arguments.megabytes, "hashes": hashes.found}
    print(f"\nSaved to {harness.save(arguments.json, 'fingerprints', results)}")
    print(f"{len(hashes.found)} hashes, {hashes.n_different} different, {len(missing)} not computed")
    return 1 if hashes.n_different or hashes.disagreements() else 0


if __name__ == "__main__":
    sys.exit(main())
