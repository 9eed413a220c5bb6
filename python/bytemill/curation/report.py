"""The page of a curation: what each step and rule removed, with samples of it and of what stays.

All files of the result are read once, twice if there are near duplicates; memory holds the samples and counts.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from bytemill.curation.documents import BATCH_BYTES
from bytemill.curation.evidence import Evidence, evidence
from bytemill.curation.parts import read_records
from bytemill.curation.recipe import Recipe
from bytemill.errors import CurationError
from bytemill.report import Table, render
from bytemill.report.charts import Chart, Shape, box, drawings, label, line
from bytemill.report.rendering import Figure
from bytemill.system.units import format_bytes, format_count, format_share

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from bytemill.tokenizer import Tokenizer

RESULT = "curation.json"
N_SAMPLES = 20
"""Removals of a rule, and documents that stay, that are shown."""
_N_DOMAINS = 30
_BEFORE, _EXCERPT = 160, 700
"""Characters of an excerpt before the first mark, and in all."""
_MAX_TEXT = 100_000
_OTHER = "other"


@dataclass(frozen=True)
class Sample:
    """A document on the page."""

    heading: str
    place: str
    reason: str
    parts: list[tuple[str, bool]]
    """Pieces of the text, and whether they are marked."""
    is_cut: bool


@dataclass
class _Group:
    """Documents of a language, length or domain."""

    documents: int = 0
    n_bytes: int = 0
    kept_documents: int = 0
    kept_bytes: int = 0

    def add(self, n_bytes: int, *, is_kept: bool) -> None:
        self.documents += 1
        self.n_bytes += n_bytes
        self.kept_documents += is_kept
        self.kept_bytes += n_bytes * is_kept


@dataclass
class _Chosen:
    """A sample that depends on the documents alone: those with the smallest hashes."""

    size: int = N_SAMPLES
    heap: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list[tuple[int, str, dict[str, Any]]])

    def add(self, salt: str, record: dict[str, Any]) -> None:
        name = f"{record['source']} {record['id']}"
        digest = hashlib.blake2b(f"{salt} {name}".encode("utf-8", "replace"), digest_size=8).digest()
        key = -int.from_bytes(digest, "big")
        if len(self.heap) < self.size or key > self.heap[0][0]:
            entry = key, name, {**record, "text": record["text"][:_MAX_TEXT]}
            (heapq.heappush if len(self.heap) < self.size else heapq.heapreplace)(self.heap, entry)

    @property
    def records(self) -> list[dict[str, Any]]:
        """The documents in corpus order."""
        return [record for _, _, record in sorted(self.heap, key=lambda entry: entry[1])]


class CurationReport:
    """What a page shows of the output folder of `data curate`.

    Args:
        folder: The folder.
        tokenizer: Count the tokens of all documents too.

    Raises:
        CurationError: It is not the folder of a curation, or a file of it is missing or damaged.
    """

    def __init__(self, folder: str | os.PathLike[str], tokenizer: Tokenizer | None = None) -> None:
        self.folder = Path(folder)
        try:
            self.result: dict[str, Any] = json.loads((self.folder / RESULT).read_text(encoding="utf-8"))
            self.recipe = Recipe.from_dict(self.result["recipe"], str(self.folder / RESULT))
            self.funnel: dict[str, Any] = self.result["funnel"]
        except FileNotFoundError as error:
            raise CurationError(
                f"{self.folder} is not the output of a curation",
                hint="make one: bytemill data curate RECIPE INPUTS -o DIR",
            ) from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CurationError(f"{self.folder / RESULT} is damaged: {error!r}") from error
        self._specs = {spec.name: spec for spec in self.recipe.steps}
        self._tokenizer = tokenizer
        self.kept = _Chosen()
        self.removed: dict[tuple[str, str], _Chosen] = defaultdict(_Chosen)
        self.languages: dict[str, _Group] = defaultdict(_Group)
        self.lengths: dict[str, _Group] = defaultdict(_Group)
        self.domains: dict[str, _Group] = defaultdict(_Group)
        self.n_tokens: Counter[str] = Counter()
        """Tokens of the documents that each step removed; those that stay under an empty name."""
        self._firsts: dict[str, str] = {}
        for name in ("kept", "removed"):
            for record in self._records(name):
                self._add(record)
        self._read_firsts()

    def _records(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the documents that stay or those that go, and count their tokens."""
        batch: list[tuple[str, str]] = []
        n_characters = 0
        for path in self._files(name):
            try:
                for record in read_records(path):
                    text = cast("str", record["text"])
                    if self._tokenizer is not None:
                        batch.append((_step_of(record), text))
                        n_characters += len(text)
                        if n_characters >= BATCH_BYTES:
                            self._count_tokens(batch)
                            batch, n_characters = [], 0
                    yield record
            except Exception as error:  # of zstandard, JSON or a missing field
                raise CurationError(f"{path} is damaged: {error!r}") from error
        self._count_tokens(batch)

    def _files(self, name: str) -> list[Path]:
        found: list[Path] = []
        for own in self.result.get("outputs", ()):
            path = self.folder / own["file"]
            if path.parent.name != name:
                continue
            if not path.is_file() or path.stat().st_size != own["n_bytes"]:
                problem = "is damaged: it has another size" if path.exists() else "is missing"
                raise CurationError(
                    f"{path} {problem}", hint="run data curate again: it writes the same file"
                )
            found.append(path)
        return found

    def _count_tokens(self, batch: list[tuple[str, str]]) -> None:
        if self._tokenizer is None or not batch:
            return
        ids, offsets = self._tokenizer.encode_batch_to_numpy([text for _, text in batch], allowed_special=())
        del ids
        for (step, _), n in zip(batch, (offsets[1:] - offsets[:-1]).tolist(), strict=True):
            self.n_tokens[step] += n

    def _add(self, record: dict[str, Any]) -> None:
        removed = record.get("removed_by")
        n_bytes, is_kept = len(record["text"].encode("utf-8", "replace")), removed is None
        if removed is None:
            self.kept.add("", record)
        else:
            for rule in removed["rules"]:
                self.removed[removed["step"], rule].add(rule, record)
        url: str | None = record.get("url")
        domain: str = record["source"] if url is None else _host(url)
        groups: list[tuple[dict[str, _Group], str]] = [
            (self.lengths, _length(n_bytes)),
            (self.domains, domain),
        ]
        languages = [spec.name for spec in self.recipe.steps if spec.use == "language"]
        if languages:
            groups.append(
                (self.languages, record["measurements"].get(languages[0], {}).get("label", "not measured"))
            )
        for group, name in groups:
            group[name].add(n_bytes, is_kept=is_kept)

    def _read_firsts(self) -> None:
        """Read the documents that sampled near duplicates are similar to."""
        wanted = {
            record["measurements"][step]["duplicate_of"]
            for (step, _), chosen in self.removed.items()
            if self._specs[step].use == "near"
            for record in chosen.records
        }
        if not wanted:
            return
        for name in ("kept", "removed"):
            for path in self._files(name):
                for record in read_records(path):
                    if record["id"] in wanted:
                        self._firsts[record["id"]] = record["text"][:_MAX_TEXT]

    def samples(self, step: str, rule: str) -> list[Sample]:
        """Return removals of a rule with what decided."""
        spec = self._specs[step]
        found: list[Sample] = []
        for record in self.removed[step, rule].records:
            values = record["measurements"]
            first = self._firsts.get(values.get(step, {}).get("duplicate_of", ""))
            found.append(_sample(record, evidence(spec, rule, record["text"], values, first)))
        return found

    def kept_samples(self) -> list[Sample]:
        """Return documents that stay."""
        return [_sample(record, Evidence("", [])) for record in self.kept.records]

    def page(self) -> str:
        """Render the page, which loads nothing from elsewhere."""
        funnel = self.funnel
        n, kept = funnel["documents"], funnel["kept_documents"]
        tiles = [
            (f"{kept:,}", f"documents stay of {n:,}"),
            (_share(kept, n), "of the documents"),
            (format_bytes(funnel["kept_bytes"]), f"of text stay of {format_bytes(funnel['bytes'])} read"),
        ]
        if self.n_tokens:
            tiles.append((format_count(self.n_tokens[""]), "tokens stay"))
        return render(
            "curation.html",
            "bytemill.curation",
            folder=self.folder.name,
            inputs=[own.get("name", "") for own in self.result.get("inputs", ())],
            tiles=tiles,
            chart=Figure(
                _funnel_chart(funnel),
                "Documents that stay after each step. A step sees what the steps before it left.",
            ),
            funnel=self.funnel_table(),
            rules=self.rules_table(),
            removals=[
                {"step": step, "rule": rule, "samples": self.samples(step, rule)}
                for step, own in funnel["steps"].items()
                for rule in own["rules"]
                if (step, rule) in self.removed
            ],
            kept=self.kept_samples(),
            groups=[
                table
                for table in (
                    _group_table("Languages", "language", self.languages, _by_size),
                    _group_table("Lengths", "bytes of text", self.lengths, _by_length),
                    _group_table("Domains", "domain or input", self.domains, _by_size),
                )
                if table is not None
            ],
            recipe=json.dumps(self.result["recipe"], indent=2, ensure_ascii=False),
        )

    def funnel_table(self) -> Table:
        """What each step saw and left."""
        header = ["step", "documents", "stay", "removed", "removed %", "MB in", "MB stay"]
        left = sum(self.n_tokens.values())
        rows: list[list[str]] = []
        for name, step in self.funnel["steps"].items():
            n, kept = step["documents"], step["kept_documents"]
            row = [name, f"{n:,}", f"{kept:,}", f"{n - kept:,}", _percent(n - kept, n)]
            row += [f"{step[key] / 1e6:,.3f}" for key in ("bytes", "kept_bytes")]
            if self.n_tokens:
                row += [f"{left:,}", f"{left - self.n_tokens[name]:,}"]
                left -= self.n_tokens[name]
            rows.append(row)
        header += ["tokens in", "tokens stay"] if self.n_tokens else []
        return Table("What each step saw and left", header, rows)

    def rules_table(self) -> Table:
        """What each rule removed, and what no other rule would have removed."""
        rows = [
            [
                name,
                rule,
                f"{own['documents']:,}",
                f"{own['bytes'] / 1e6:,.3f}",
                f"{own['alone_documents']:,}",
                f"{own['alone_bytes'] / 1e6:,.3f}",
            ]
            for name, step in self.funnel["steps"].items()
            for rule, own in step["rules"].items()
        ]
        header = ("step", "rule", "documents", "MB", "alone", "MB alone")
        return Table("What each rule removed, and what it alone removed", header, rows, 2)


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or _OTHER
    except ValueError:  # a broken address
        return _OTHER


def _step_of(record: dict[str, Any]) -> str:
    return record["removed_by"]["step"] if "removed_by" in record else ""


def _share(part: int, whole: int) -> str:
    return format_share(part / whole) if whole else "–"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}" if whole else "–"


def _length(n_bytes: int) -> str:
    """Return the range of a length: powers of four.

    >>> _length(0), _length(5_000)
    ('0 to 255', '4,096 to 16,383')
    """
    power = max(4, int(math.log2(n_bytes)) // 2 + 1) if n_bytes else 4
    return f"{4 ** (power - 1) if power > 4 else 0:,} to {4**power - 1:,}"


def _by_size(item: tuple[str, _Group]) -> tuple[int, str]:
    return -item[1].documents, item[0]


def _by_length(item: tuple[str, _Group]) -> tuple[int, str]:
    return int(item[0].split()[0].replace(",", "")), ""


def _group_table(caption: str, name: str, groups: dict[str, _Group], order: Any) -> Table | None:
    if not groups:
        return None
    shown = sorted(groups.items(), key=order)
    if len(shown) > _N_DOMAINS:
        rest = _Group()
        for _, own in shown[_N_DOMAINS:]:
            for key, value in vars(own).items():
                setattr(rest, key, getattr(rest, key) + value)
        shown = [*shown[:_N_DOMAINS], (f"{len(shown) - _N_DOMAINS:,} others", rest)]
    rows = [
        [
            each,
            f"{own.documents:,}",
            f"{own.kept_documents:,}",
            _percent(own.kept_documents, own.documents),
            f"{own.n_bytes / 1e6:,.3f}",
            f"{own.kept_bytes / 1e6:,.3f}",
        ]
        for each, own in shown
    ]
    return Table(caption, (name, "documents", "stay", "stay %", "MB", "MB stay"), rows)


def _sample(record: dict[str, Any], why: Evidence) -> Sample:
    text: str = record["text"]
    start = max(0, why.spans[0][0] - _BEFORE) if why.spans else 0
    end = min(len(text), start + _EXCERPT)
    parts: list[tuple[str, bool]] = []
    at = start
    for first, last in [(max(start, i), min(j, end)) for i, j in why.spans if i < end and j > start]:
        parts += [(text[at:first], False), (text[first:last], True)]
        at = last
    parts.append((text[at:end], False))
    offset = f", at byte {record['offset']:,}" if record.get("offset") is not None else ""
    place = f"{record['source']}{offset}, document {record['id']}, {format_bytes(len(text.encode()))} of text"
    heading = record.get("title") or record.get("url") or text.strip()[:60] or "no text"
    shown = [(part, is_marked) for part, is_marked in parts if part]
    return Sample(heading, place, why.reason, shown, is_cut=start > 0 or end < len(text))


def _funnel_chart(funnel: dict[str, Any]) -> Chart:
    rows = [("read", funnel["documents"])]
    rows += [(name, step["kept_documents"]) for name, step in funnel["steps"].items()]
    largest = max(1, funnel["documents"])

    def draw(width: float) -> tuple[float, list[Shape]]:
        left, right, height = 120.0, 90.0, 30.0
        shapes: list[Shape] = [line(left, 0, left, height * len(rows), "axis")]
        for number, (name, n) in enumerate(rows):
            y = number * height
            length = (width - left - right) * n / largest
            shapes.append(label(left - 8, y + 20, name, anchor="end"))
            shapes.append(
                box(left, y + 6, length, height - 12, "f1" if number else "f0", f"{name}: {n:,} documents")
            )
            shapes.append(label(left + length + 8, y + 20, f"{n:,}", "small"))
        return height * len(rows), shapes

    described = "; ".join(f"{name} {n:,}" for name, n in rows)
    return Chart("funnel", "Documents after each step", f"Bars: {described}.", drawings(draw))


def curation_page(folder: str | os.PathLike[str], tokenizer: Tokenizer | None = None) -> str:
    """Return the page of a curation as HTML; see `CurationReport`."""
    return CurationReport(folder, tokenizer).page()
