"""The rows of an evaluation: accuracies with intervals, on all items and on those that training did not see."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from bytemill.experiment.statistics import Accuracy, AccuracyDifference, accuracy, accuracy_difference, holm

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class AccuracyRow:
    """The accuracy by one measure."""

    measure: str
    all: Accuracy
    clean: Accuracy | None
    """On the items without an overlap with training data; None without such items or a search."""
    by_group: dict[str, Accuracy]
    """By subject, if the items have one."""
    against: AccuracyDifference | None
    """This model − another one."""
    corrected_p: float | None = None
    """p of the difference for all that are shown together; see `corrected`."""

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return asdict(self)


def accuracy_rows(
    scores: Mapping[str, Sequence[float]],
    *,
    groups: Sequence[str],
    overlapping: Sequence[bool] | None = None,
    others: Mapping[str, Sequence[float]] | None = None,
) -> list[AccuracyRow]:
    """Return a row for each measure.

    Args:
        scores: Score of each item, by measure.
        groups: Group of each item; empty for none.
        overlapping: Whether each item overlaps with training data.
        others: Scores of another model on the same items.
    """
    rows: list[AccuracyRow] = []
    for measure, own in scores.items():
        clean = [score for score, seen in zip(own, overlapping or (), strict=False) if not seen]
        by_group: dict[str, list[float]] = {}
        for score, group in zip(own, groups, strict=True):
            by_group.setdefault(group, []).append(score)
        rows.append(
            AccuracyRow(
                measure,
                accuracy(own),
                accuracy(clean) if clean else None,
                {name: accuracy(values) for name, values in by_group.items() if name},
                None if others is None else accuracy_difference(own, others[measure]),
            )
        )
    return rows


def corrected(tables: Sequence[Sequence[AccuracyRow]]) -> list[list[AccuracyRow]]:
    """Return the rows of tables that are shown together, with p-values for their number (Holm 1979)."""
    ps = [row.against.p for rows in tables for row in rows if row.against and row.against.p is not None]
    found = iter(holm(ps))
    return [
        [
            replace(row, corrected_p=next(found)) if row.against and row.against.p is not None else row
            for row in rows
        ]
        for rows in tables
    ]
