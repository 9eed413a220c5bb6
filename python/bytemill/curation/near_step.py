"""The step `near`: remove near duplicates."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bytemill.curation.documents import packed
from bytemill.curation.near import NearIndex, NearSettings, Sketches, sketch_batch
from bytemill.errors import CurationError
from bytemill.tokenizer import open_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from bytemill.curation.steps import Page, Part
    from bytemill.tokenizer.tokenizer import Tokenizer

_SKETCH_SIZE = 128


@dataclass(frozen=True, kw_only=True)
class NearStepSettings(NearSettings):
    """Settings of near duplicates in a recipe."""

    tokenizer: str = ""
    """Take the n-grams of the ids of this tokenizer, a file or a published name, not of words."""
    max_removed: float = 0.5
    """Greatest share of the documents of one input that may be removed; above it the run stops."""


class Near:
    """Removes documents that are near duplicates of an earlier one."""

    Settings: ClassVar = NearStepSettings
    thresholds: ClassVar[frozenset[str]] = frozenset({"threshold", "bands", "rows", "max_removed"})
    measures: ClassVar[tuple[str, ...]] = ("duplicate_of", "similarity")
    changes_text: ClassVar[bool] = False

    def __init__(self, settings: NearStepSettings) -> None:
        self._settings = settings

    @cached_property
    def _tokenizer(self) -> Tokenizer | None:
        return open_tokenizer(self._settings.tokenizer) if self._settings.tokenizer else None

    @property
    def identity(self) -> dict[str, str] | None:
        """The content of the tokenizer. Raises TokenizerFileError if there is none."""
        return None if self._tokenizer is None else {"tokenizer": self._tokenizer.fingerprint}

    def sketch(self, pages: Sequence[Page]) -> bytes:
        """See `CorpusStep`."""
        batch = packed(page.text for page in pages)
        found = sketch_batch(batch, self._settings.n, tokenizer=self._tokenizer, num_threads=1)
        head = {
            "ids": [page.id for page in pages],
            "sources": [page.source_number for page in pages],
            "n_shingles": len(found.shingles),
        }
        arrays = (found.sketches.astype("<u4"), found.shingles.astype("<u8"), found.ends.astype("<u8"))
        return b"".join([json.dumps(head).encode(), b"\n", *(array.tobytes() for array in arrays)])

    def decide(self, parts: Sequence[Part], folder: Path) -> Iterator[list[tuple[str, dict[str, Any]]]]:
        """See `CorpusStep`."""
        with NearIndex(self._settings, folder=folder) as index:
            ids = [self._add(index, part) for part in parts]
            found = index.find()
        found.check_removed(self._settings.max_removed, parts[0].source_names if parts else ())
        starts = [0, *itertools.accumulate(map(len, ids))]

        def id_of(document: int) -> str:
            unit = int(np.searchsorted(starts, document, "right")) - 1
            return ids[unit][document - starts[unit]]

        for unit, numbers in enumerate(ids):
            values: list[tuple[str, dict[str, Any]]] = []
            for document, each in enumerate(numbers, starts[unit]):
                first = int(found.first[document])
                if first == document:
                    values.append((each, {}))
                else:
                    similarity = round(float(found.similarity[document]), 6)
                    values.append((each, {"duplicate_of": id_of(first), "similarity": similarity}))
            yield values

    def _add(self, index: NearIndex, part: Part) -> list[str]:
        """Add the documents of a part, and return their ids."""
        alive = None if part.is_new else {page.id for page in part.pages()}
        ids: list[str] = []
        for data in part.sketches():
            head, sketches = _parsed(data)
            chosen = [number for number, each in enumerate(head["ids"]) if alive is None or each in alive]
            for source, numbers in itertools.groupby(chosen, key=head["sources"].__getitem__):
                index.add_sketches(_of(sketches, list(numbers)), source=source)
            ids += [head["ids"][number] for number in chosen]
        if alive is not None and (missing := alive.difference(ids)):
            raise CurationError(
                f"document {min(missing)} now reaches the search for near duplicates, which has not seen it",
                hint="run data curate on the corpus again",
            )
        return ids

    def applied(self, page: Page, values: dict[str, Any]) -> str | None:  # noqa: ARG002
        """See `CorpusStep`."""
        return None

    def failed(self, page: Page, values: dict[str, Any]) -> list[str]:  # noqa: ARG002
        """See `Step`."""
        return ["near_duplicate"] if "duplicate_of" in values else []


def _parsed(data: bytes) -> tuple[dict[str, Any], Sketches]:
    begin = data.index(b"\n") + 1
    head: dict[str, Any] = json.loads(data[:begin])
    n_pages, n_shingles = len(head["ids"]), head["n_shingles"]
    sketches = np.frombuffer(data, "<u4", n_pages * _SKETCH_SIZE, begin)
    shingles = np.frombuffer(data, "<u8", n_shingles, begin + sketches.nbytes)
    ends = np.frombuffer(data, "<u8", n_pages, begin + sketches.nbytes + shingles.nbytes)
    return head, Sketches(sketches, shingles, ends)


def _of(sketches: Sketches, numbers: list[int]) -> Sketches:
    """Return the sketches of some documents."""
    if len(numbers) == len(sketches.ends):
        return sketches
    rows: NDArray[np.uint32] = sketches.sketches.reshape(-1, _SKETCH_SIZE)[numbers].ravel()
    bounds = [0, *sketches.ends.tolist()]
    sets = [sketches.shingles[bounds[number] : bounds[number + 1]] for number in numbers]
    ends = np.cumsum([len(each) for each in sets], dtype=np.uint64)
    return Sketches(rows, np.concatenate(sets), ends)
