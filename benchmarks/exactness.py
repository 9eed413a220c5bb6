"""What is computed, not how fast: the cases `exactness` and `fingerprints`."""

import argparse
import hashlib
import itertools
import json
import multiprocessing
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.encode import documents_of
from benchmarks.harness import UsageError, listed, option
from benchmarks.peers.encoders import PUBLISHED, expression_of, vocabulary_of

PATTERNS = ("gpt2", "cl100k", "o200k", "llama3")
RANKS = {name: f"{file}.tiktoken" for name, file in PUBLISHED.items()} | {"llama3": "cl100k_base.tiktoken"}
PIECE_BYTES = 64 * 1024
BATCH_STRINGS = 5_000
TRAINED_TOKENS = 32_000
LIST_CHARACTERS = 10_000_000
"""Lists, iterators and pre-token boundaries are Python objects: a part of the text is enough."""
STREAM_BYTES = 1_000_003
"""Odd, so that pieces end inside characters."""


@dataclass(frozen=True)
class Difference:
    """Where bytemill and its reference part."""

    pattern: str
    what: str
    text: str
    source: str


@dataclass(frozen=True)
class Job:
    """A piece of work for one process: a batch of random strings, or a stretch of a file."""

    source: str
    seed: int = 0
    batch: int = 0
    n_strings: int = 0
    start: int = 0
    end: int = 0

    def texts(self) -> list[str]:
        """What is to be compared."""
        if self.n_strings:
            from benchmarks.texts.generated import draw

            return draw(self.seed, self.batch, self.n_strings)
        with Path(self.source).open("rb") as file:
            file.seek(self.start)
            return [file.read(self.end - self.start).decode("utf-8", "replace")]


@cache
def expression(name: str) -> Any:
    """The pattern compiled by `regex`. In Python `$` also matches before a line feed at the end of the text."""
    import regex

    from bytemill._core import NAMED_PATTERNS

    return regex.compile(NAMED_PATTERNS[name].replace("$", r"\Z"))


def same_pretokens(name: str, text: str) -> bool:
    """Whether the core splits as the expression says; both leave nothing out, so equal pieces lie at equal places."""
    from bytemill._core import pretoken_spans

    data = text.encode("utf-8")
    ours = [data[start:end] for start, end in pretoken_spans(text, name)]
    return ours == [pretoken.encode("utf-8") for pretoken in expression(name).findall(text)]


@cache
def encoders(name: str) -> tuple[Any, Any] | None:
    """bytemill's and tiktoken's encoder for a pattern; None where the rank file is not at hand."""
    import tiktoken

    import bytemill
    from bytemill._core import NAMED_PATTERNS

    data = harness.shared_data()
    if data is None or not (data / RANKS[name]).is_file():
        return None
    ours = bytemill.Tokenizer.load(data / RANKS[name], pattern=name, special_tokens={})
    pattern = expression_of(name) if name != "llama3" else NAMED_PATTERNS[name]
    ranks = {ours.decode_single_token_bytes(i): i for i in ours.vocab}
    return ours, tiktoken.Encoding("peer", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})


def same_ids(name: str, text: str) -> bool:
    """Whether the ids are tiktoken's; True where there is nothing to compare with."""
    both = encoders(name)
    return both is None or both[0].encode_ordinary(text) == both[1].encode_ordinary(text)


@cache
def models(path: str) -> tuple[Any, Any]:
    """bytemill's and Hugging Face's tokenizer of a tokenizer.json."""
    import tokenizers

    import bytemill

    return bytemill.Tokenizer.load(path), tokenizers.Tokenizer.from_file(path)


def same_model_ids(path: str, text: str) -> bool:
    """Whether the ids are Hugging Face's, added tokens included."""
    ours, theirs = models(path)
    return ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids


def with_added_tokens(path: str, texts: list[str], seed: int, batch: int) -> list[str]:
    """The texts, every other one with an added token of the model somewhere."""
    added = [token.content for token in models(path)[1].get_added_tokens_decoder().values()]
    chance = random.Random(f"{seed} {batch}")  # noqa: S311
    changed = list(texts)
    for k in range(0, len(texts), 2):
        at = chance.randint(0, len(texts[k]))
        changed[k] = texts[k][:at] + chance.choice(added) + texts[k][at:]
    return changed


CHECKS: dict[str, Callable[[str, str], bool]] = {"pre-tokens": same_pretokens, "ids": same_ids}
MODEL_CHECKS: dict[str, Callable[[str, str], bool]] = {"ids": same_model_ids}


def shortest(text: str, differs: Callable[[str], bool]) -> str:
    """A string that still differs and no part of which, left out, leaves a difference.

    >>> shortest("xxabxxcxx", lambda text: "a" in text and "c" in text)
    'ac'
    """
    n_characters = len(text) // 2
    while n_characters:
        start = 0
        while start < len(text):
            without = text[:start] + text[start + n_characters :]
            if differs(without):
                text = without
            else:
                start += n_characters
        n_characters //= 2
    return text


@harness.case(
    option("what", choices=("texts", "random")),
    option("--text", type=Path, action="append", help="file to compare on, repeatable"),
    option("--strings", type=int, default=10_000_000, help="random strings (%(default)s)"),
    option("--seed", type=int, default=1, help="of the random strings (%(default)s)"),
    option("--patterns", type=listed(), default=list(PATTERNS)),
    option("--model", action="append", help="tokenizer.json instead of patterns, repeatable"),
    option("--processes", type=int, default=2, help="default 2"),
    option("--seconds", type=float, help="stop after so many seconds"),
    option("--state", type=Path, help="JSON file that says where to go on"),
)
def exactness(options: argparse.Namespace) -> int:
    """Compare pre-tokens with Python's `regex` and ids with tiktoken, on all text at hand and on random strings.

        python -m benchmarks exactness texts  [--text FILE]... [--processes 2]
        python -m benchmarks exactness random [--strings 10000000] [--seed 1] [--state FILE] [--seconds 60]
        python -m benchmarks exactness random --model qwen3.tokenizer.json --strings 1000000

    "texts" takes every file of ../shared/data and those of `corpus`, in pieces of about 64 KB that end at line
    ends. "random" takes strings from `texts/generated.py`. Patterns gpt2, cl100k, o200k and llama3 (which has
    cl100k's ranks for want of its own); ids where the rank files are at hand. The first difference of each pattern
    is printed as the shortest string that still shows it, and the exit status is 1. With --state, a run that was
    ended by --seconds or Ctrl-C resumes where it stopped. With --model, ids of a tokenizer.json are compared with
    Hugging Face's instead, and half of the random strings get one of its added tokens at a random place.
    """
    jobs = jobs_of(options)
    state: dict[str, Any] = {"done": 0, "differences": []}
    if options.state is not None and options.state.is_file():
        state = json.loads(options.state.read_text(encoding="utf-8"))
    n_done, found = _run(jobs[state["done"] :], options)
    state["done"] += n_done
    state["differences"] += [[d.pattern, d.what, ascii(d.text), d.source] for d in found]
    if options.state is not None:
        options.state.write_text(json.dumps(state, indent=1), encoding="utf-8")
    print(f"{state['done']:,} of {len(jobs):,} jobs done, differences in {len(state['differences'])}")
    return 1 if state["differences"] else 0


def compare(job: Job, patterns: tuple[str, ...]) -> tuple[int, int, list[Difference]]:
    """Number of strings and of their bytes, and the first difference of each pattern and check."""
    texts = drawn = job.texts()
    found: list[Difference] = []
    for name in patterns:
        is_model = name not in PATTERNS
        if is_model and job.n_strings:
            texts = with_added_tokens(name, drawn, job.seed, job.batch)
        for what, check in (MODEL_CHECKS if is_model else CHECKS).items():
            wrong = next((text for text in texts if not check(name, text)), None)
            if wrong is not None:
                text = shortest(wrong, lambda text, name=name, check=check: not check(name, text))
                source = f"{job.source}, seed {job.seed}, batch {job.batch}, bytes {job.start}-{job.end}"
                found.append(Difference(name, what, text, source))
    return len(texts), sum(len(text.encode("utf-8")) for text in texts), found


def pieces_of(path: Path) -> Iterator[Job]:
    """The file in stretches that end at line ends."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = 0
        while start < size:
            file.seek(min(start + PIECE_BYTES, size))
            file.readline()
            yield Job(str(path), start=start, end=file.tell())
            start = file.tell()


def all_texts() -> list[Path]:
    """Every file of the shared data, and the texts of `corpus`."""
    data = harness.shared_data()
    files = sorted(path for path in data.rglob("*") if path.is_file()) if data is not None else []
    return [*files, *harness.standing_texts()]


def jobs_of(options: argparse.Namespace) -> list[Job]:
    """All the work, in the order in which it is done."""
    if options.what == "random":
        n_batches = -(-options.strings // BATCH_STRINGS)
        return [Job("random", options.seed, batch, BATCH_STRINGS) for batch in range(n_batches)]
    texts: list[Path] = options.text or all_texts()
    return [job for path in texts for job in pieces_of(path)]


def _run(jobs: list[Job], options: argparse.Namespace) -> tuple[int, list[Difference]]:
    """Do the jobs in order until the time is up; return how many are done and what was found."""
    started = shown = time.monotonic()
    n_done = n_strings = n_bytes = 0
    found: list[Difference] = []
    context = multiprocessing.get_context("spawn")
    with context.Pool(options.processes) as pool:
        # Jobs are handed out in order as results are taken, so that a run can end between two of them.
        work = partial(compare, patterns=tuple(options.model or options.patterns))
        for strings, size, differences in pool.imap(work, jobs):
            n_done, n_strings, n_bytes = n_done + 1, n_strings + strings, n_bytes + size
            for difference in differences:
                known = {(other.pattern, other.what) for other in found}
                if (difference.pattern, difference.what) not in known:
                    print(
                        f"{difference.pattern}, {difference.what}: {difference.text!a} ({difference.source})",
                        flush=True,
                    )
                found.append(difference)
            now = time.monotonic()
            if now - shown > 10 or n_done == len(jobs):
                shown = now
                rate = n_bytes / 1e6 / (now - started)
                print(
                    f"{n_done:,} of {len(jobs):,} jobs, {n_strings:,} strings, {n_bytes / 1e6:.1f} MB, "
                    f"{n_strings / (now - started):,.0f} strings/s, {rate:.2f} MB/s, "
                    f"differences in {len(found)} jobs",
                    flush=True,
                )
            if options.seconds is not None and now - started > options.seconds:
                pool.terminate()
                break
    return n_done, found


@harness.case(
    harness.TEXTS,
    harness.megabytes(0),
    option("--vocab", type=listed(), default=[*PUBLISHED, "trained"], help="names or rank files"),
    option("--threads", type=listed(int), default=[1, 2], help="numbers of threads (1,2)"),
    option("--compare", type=Path, help="file that an earlier run has saved"),
    harness.JSON,
)
def fingerprints(options: argparse.Namespace) -> int:
    """Hash everything that the core computes from the benchmark texts, to compare two builds.

        python -m benchmarks fingerprints --json before.json
        python -m benchmarks fingerprints --compare before.json [--text FILE]... [--vocab gpt2,cl100k,o200k,trained]

    Every text is pre-tokenized, encoded and decoded with every vocabulary on each number of threads, through
    arrays, lists, batches, files and streams, and a tokenizer is trained on it. "trained" is a vocabulary learnt
    from the first text. A hash is SHA-256 of the values, whatever integer type they come in. The exit status is 1
    if a hash differs from the one in the file to compare with, or if two interfaces give different ids for the
    same text. To take the hashes of another build, set PYTHONPATH to its folder `python`.
    """
    texts = harness.chosen_texts(options.text)
    before: dict[str, str] = {}
    if options.compare:
        saved = json.loads(options.compare.read_text(encoding="utf-8"))
        if saved["megabytes"] != options.megabytes:
            raise UsageError(f"{options.compare} was made with --megabytes {saved['megabytes']:g}")
        before = saved["hashes"]
    hashes = Hashes(before)
    n_bytes = int(options.megabytes * 1e6) or None
    threads_tried: list[int] = options.threads
    bytemill = harness.require("bytemill")

    @cache
    def trained(path: Path, threads: int) -> Any:
        text = harness.read_text(path, n_bytes)
        return bytemill.train_from_iterator([text], TRAINED_TOKENS, [], pattern="gpt2", num_threads=threads)

    for path, threads in itertools.product(texts, threads_tried):
        hashes.add(digest_of_merges(trained(path, threads).merges), path.name, "merges", f"{threads} threads")
    loaders = {
        name: loader_of(name, texts, partial(trained, texts[0], threads_tried[0])) for name in options.vocab
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
    results = {"megabytes": options.megabytes, "hashes": hashes.found}
    print(f"\nSaved to {harness.save(options.json, 'fingerprints', results)}")
    print(f"{len(hashes.found)} hashes, {hashes.n_different} different, {len(missing)} not computed")
    return 1 if hashes.n_different or hashes.disagreements() else 0


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
    for number in range(8):
        end = data.find(b"\n", len(data) * (number + 1) // 8 - 1) + 1 or len(data)
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
