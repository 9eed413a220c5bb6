"""One measurement of encoding, in a process of its own: what `encode.py` starts again and again."""

import ctypes
import hashlib
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import harness
from encoder import Encoder, arrays_of
from encoders import ENCODERS
from harness import Stopwatch, UnavailableError
from vocabularies import Vocabulary

NOT_OFFERED = "not offered"
MOST_DOCUMENTS = 10_000
N_SHORT = 2_000
SHORT_CHARACTERS = 100
N_FILES = 8
STRETCH_CHARACTERS = 10_000_000


def documents_of(text: str) -> list[str]:
    """The text in documents of 1,000 to 5,000 characters that end at line ends, 10,000 at most.

    The sizes come again and again in the same order, so they are the same whatever the text.
    """
    documents: list[str] = []
    start = 0
    while start < len(text) and len(documents) < MOST_DOCUMENTS:
        size = 1_000 + len(documents) * 1_237 % 4_000
        end = text.find("\n", start + size) + 1 or len(text)
        documents.append(text[start:end])
        start = end
    return documents


def short_strings_of(text: str) -> list[str]:
    """Strings of 100 characters from all over the text."""
    step = max(len(text) // N_SHORT, SHORT_CHARACTERS)
    return [text[start : start + SHORT_CHARACTERS] for start in range(0, len(text) - SHORT_CHARACTERS, step)]


def stretches_of(text: str) -> list[str]:
    """The text in stretches of ten million characters that end at line ends."""
    stretches: list[str] = []
    start = 0
    while start < len(text):
        end = text.find("\n", start + STRETCH_CHARACTERS) + 1 or len(text)
        stretches.append(text[start:end])
        start = end
    return stretches


def keep_utf8(text: str) -> None:
    """Has CPython make the UTF-8 form of a str, which it keeps beside the characters."""
    size = ctypes.c_ssize_t()
    ctypes.pythonapi.PyUnicode_AsUTF8AndSize(ctypes.py_object(text), ctypes.byref(size))


def fingerprint(ids: Any, *, batch: bool) -> tuple[int, str]:
    """Number of tokens, and a hash of the ids that does not depend on the integer type they came in."""
    import numpy as np

    if isinstance(ids, tuple):
        ids = arrays_of(ids)
    digest = hashlib.sha256()
    n_tokens = 0
    for row in ids if batch else [ids]:
        # A list of ints is converted in parts: all at once it would take as much memory again.
        for start in range(0, len(row), 1 << 20):
            digest.update(np.asarray(row[start : start + (1 << 20)], dtype="<u4").tobytes())
        digest.update(b"|")
        n_tokens += len(row)
    return n_tokens, digest.hexdigest()


def _one_by_one(
    encode: Callable[[str], Any], seconds: list[float] | None = None
) -> Callable[[list[str]], list[Any]]:
    """Encodes text after text, and notes how long each takes where a list for it is given."""
    if seconds is None:
        return lambda texts: [encode(text) for text in texts]

    def each(texts: list[str]) -> list[Any]:
        rows: list[Any] = []
        for text in texts:
            with Stopwatch() as watch:
                rows.append(encode(text))
            seconds.append(watch.wall)
        return rows

    return each


def _read_first(encode: Callable[[str], Any]) -> Callable[[list[Path]], list[Any]]:
    """What the tools do for files that have no call for them."""
    return lambda paths: [encode(path.read_bytes().decode("utf-8")) for path in paths]


def _written(text: str, folder: Path) -> list[Path]:
    """The text in files of whole lines."""
    paths: list[Path] = []
    lines = text.splitlines(keepends=True)
    for index in range(N_FILES):
        part = lines[index * len(lines) // N_FILES : (index + 1) * len(lines) // N_FILES]
        paths.append(folder / f"{index}.txt")
        paths[-1].write_bytes("".join(part).encode("utf-8"))
    return paths


def call_of(encoder: Encoder, interface: str, seconds: list[float]) -> Callable[[Any], Any]:
    """The call that an interface stands for; UnavailableError where the tool does not offer it."""
    to_array, to_list = encoder.to_array, encoder.to_list
    either = to_array or to_list
    calls: dict[str, Callable[[Any], Any] | None] = {
        "array": to_array,
        "list": to_list,
        "batch": encoder.batch,
        "batch array": encoder.batch_array,
        "files": encoder.files or (_read_first(either) if either else None),
        "short list": _one_by_one(to_list) if to_list else None,
        "short array": _one_by_one(to_array) if to_array else None,
        "stretches": _one_by_one(either, seconds) if either else None,
    }
    call = calls[interface]
    if call is None:
        raise UnavailableError(NOT_OFFERED)
    return call


def work(request: dict[str, Any]) -> dict[str, Any]:
    """Loads, encodes the text once, and once more."""
    interface: str = request["interface"]
    vocabulary = Vocabulary(Path(request["vocab"]), request["pattern"])
    text = harness.read_text(request["text"], request["n_bytes"])
    with Stopwatch() as loading:
        encoder = ENCODERS[request["tool"]](vocabulary, request["threads"])
    seconds: list[float] = []
    encode = call_of(encoder, interface, seconds)
    with tempfile.TemporaryDirectory() as folder:
        given, warming = given_to(interface, text, Path(folder))
        with Stopwatch() as starting:
            encode(warming)
        seconds.clear()
        # numpy's threads, which a tool may have just started, spin for a while before they sleep.
        time.sleep(0.1)
        wait_until(request.get("start_at"))
        return {"version": encoder.version, "load_seconds": loading.wall + starting.wall} | _passes(
            encode,
            given,
            is_batch=interface not in {"array", "list"},
            seconds=seconds,
            again=request["again"],
        )


def wait_until(moment: float | None) -> None:
    """Sleeps up to a moment of `time.time()`, for processes that are to begin together."""
    if moment is not None:
        left = moment - time.time()
        if left < 0:
            raise RuntimeError(f"was {-left:.1f} s late to begin")
        time.sleep(left)


def given_to(interface: str, text: str, folder: Path) -> tuple[Any, Any]:
    """What is encoded, and a few words in the same form for the tools that prepare themselves at the first call."""
    few = "A few words."
    if interface in {"array", "list"}:
        keep_utf8(text)
        return text, few
    if interface == "files":
        (folder / "few").write_text(few, encoding="utf-8")
        return _written(text, folder), [folder / "few"]
    cut = {"batch": documents_of, "batch array": documents_of, "stretches": stretches_of}.get(
        interface, short_strings_of
    )
    texts = cut(text)
    for piece in texts:
        keep_utf8(piece)
    return texts, [few]


def _passes(
    encode: Callable[[Any], Any], given: Any, *, is_batch: bool, seconds: list[float], again: bool
) -> dict[str, Any]:
    n_bytes = _n_bytes(given)
    with Stopwatch() as new:
        ids = encode(given)
    peak = harness.peak_memory_bytes()
    n_tokens, digest = fingerprint(ids, batch=is_batch)
    del ids
    values: dict[str, Any] = {"n_bytes": n_bytes, "n_tokens": n_tokens, "ids": digest, "peak_bytes": peak}
    values |= {"n_texts": len(given) if is_batch else 1, "new_seconds": new.wall}
    if len(seconds) > 1:
        # The last stretch may be a remnant.
        values["first_mb_per_s"] = len(given[0].encode()) / 1e6 / seconds[0]
        values["last_mb_per_s"] = len(given[-2].encode()) / 1e6 / seconds[-2]
    if again:
        with Stopwatch() as watch:
            ids = encode(given)
        values["again_seconds"] = watch.wall
        if fingerprint(ids, batch=is_batch)[1] != digest:
            raise RuntimeError("the second pass gave other ids than the first")
    return values


def _n_bytes(given: Any) -> int:
    texts: Sequence[Any] = [given] if isinstance(given, str) else given
    return sum(len(text.encode("utf-8")) if isinstance(text, str) else text.stat().st_size for text in texts)
