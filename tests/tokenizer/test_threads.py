"""Several Python threads use one tokenizer at the same time without blocking each other."""

import copy
import pickle
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import bytemill

END = "<|endoftext|>"
PARAGRAPH = (
    "The quick brown fox, 123 foxes; 今日は、世界。 naïve café's indented\n    code(that) {calls}\r\n\r\n"
)


MANY = 8_000_000 // len(PARAGRAPH.encode())
"""Paragraphs in 8 MB."""


@pytest.fixture
def ticks() -> Iterator[list[int]]:
    """A thread that counts the milliseconds in which it was let in.

    Nobody is made to hand the interpreter over meanwhile: the thread gets it only while another gives it up by itself.
    """
    counted, stop = [0], threading.Event()

    def tick() -> None:
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0.001)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1000.0)
    thread = threading.Thread(target=tick)
    thread.start()
    try:
        yield counted
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(before)


LONG_WORK: dict[str, Callable[[bytemill.Tokenizer, str], Any]] = {
    "encode": lambda ours, text: ours.encode(text, num_threads=1),
    "encode on threads": lambda ours, text: ours.encode(text, num_threads=2),
    "encode_to_numpy": lambda ours, text: ours.encode_to_numpy(text, num_threads=1),
    "encode_with_offsets": lambda ours, text: ours.core.encode_with_spans(text, "all", 1),
    "encode_batch": lambda ours, text: ours.encode_batch([text], num_threads=1),
    "count": lambda ours, text: ours.count(text),
    "encode_iterable": lambda ours, text: next(ours.encode_iterable([text])),
    "a stream": lambda ours, text: ours.core.stream("all", "strict", 1).feed(text),
}


@pytest.mark.parametrize("name", LONG_WORK)
def test_other_threads_run_while_one_encodes(small: bytemill.Tokenizer, ticks: list[int], name: str) -> None:
    text = PARAGRAPH * MANY
    assert other_thread_runs_while(lambda: LONG_WORK[name](small, text), ticks)


def test_other_threads_run_while_one_decodes(small: bytemill.Tokenizer, ticks: list[int]) -> None:
    ids = np.tile(small.encode_to_numpy(PARAGRAPH), MANY)
    assert other_thread_runs_while(lambda: small.decode_bytes(ids), ticks)


def other_thread_runs_while(work: Callable[[], object], ticks: list[int]) -> bool:
    """Check for ticks within the work, which is repeated: the system may have no processor left for them.

    Between two repetitions this thread keeps the interpreter to itself.
    """
    before = ticks[0]
    for _ in range(100):
        work()
        if ticks[0] - before >= 2:
            return True
    return False


def test_the_other_thread_is_blocked_if_the_gil_is_held(ticks: list[int]) -> None:
    before = ticks[0]
    sum(number * number for number in range(300_000))
    assert ticks[0] == before


def everything(ours: bytemill.Tokenizer, text: str) -> list[Any]:
    """What each method gives for a text."""
    ids = ours.encode(text)
    encoded = ours.encode_with_offsets(text)
    decoder = ours.stream_decoder()
    again = pickle.loads(pickle.dumps(ours))  # noqa: S301
    return [
        ids,
        ours.encode_ordinary(text),
        ours.encode_to_numpy(text).tolist(),
        ours.encode_batch([text, text[:20]]),
        list(ours.encode_iterable(text.splitlines(keepends=True))),
        encoded.ids.tolist(),
        encoded.char_offsets.tolist(),
        ours.count(text),
        ours.decode(ids),
        ours.decode_bytes(ids),
        ours.decode_batch([ids, ids[:3]], errors="ignore"),
        "".join(decoder.feed(token_id) for token_id in ids) + decoder.finish(),
        ours.explain(text[:60]),
        [ours.token(token_id) for token_id in sorted(set(ids))],
        ours.fingerprint,
        again.fingerprint,
        again.encode(text),
        copy.copy(ours).encode(text[:100]),
        ours.truncate(270).encode(text),
    ]


def test_eight_threads_get_the_same_ids_as_one() -> None:
    chance = random.Random(11)
    words = [*PARAGRAPH.split(" "), END, "x" * 300, "一" * 100, "é" * 70, "\n"]
    texts = [" ".join(chance.choices(words, k=chance.randint(1, 300))) for _ in range(8)]
    specs = bytemill.train_from_iterator([PARAGRAPH * 2], vocab_size=320, special_tokens=[END]).to_spec()
    expected = [everything(bytemill.Tokenizer.from_spec(specs), text) for text in texts]
    # All tables that are made on first use are made by whoever comes first.
    shared = bytemill.Tokenizer.from_spec(specs)
    start = threading.Barrier(8)

    def work(number: int) -> list[list[Any]]:
        start.wait()
        return [everything(shared, texts[(number + turn) % 8]) for turn in range(2)]

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            for number, results in enumerate(pool.map(work, range(8))):
                for turn, result in enumerate(results):
                    assert result == expected[(number + turn) % 8]
    finally:
        sys.setswitchinterval(before)
