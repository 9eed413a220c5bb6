"""Statistics of a curation: what each step removed, in documents and bytes, and each rule alone.

They are made of documents by `count`, one unit after the other, and added up in the order of the units.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bytemill.curation.recipe import Recipe
    from bytemill.curation.steps import Page

Funnel = dict[str, Any]
"""Nested counts, as JSON values."""


def empty_funnel(recipe: Recipe) -> Funnel:
    """Return the statistics of no documents."""
    return {
        "documents": 0,
        "bytes": 0,
        "kept_documents": 0,
        "kept_bytes": 0,
        "steps": {
            spec.name: {
                **dict.fromkeys(("documents", "bytes", "kept_documents", "kept_bytes"), 0),
                "rules": {},
            }
            for spec in recipe.steps
        },
    }


def count(funnel: Funnel, page: Page, failures: dict[str, list[str]], recipe: Recipe) -> None:
    """Add a document with its measurements.

    Args:
        funnel: The statistics.
        page: The document; `removed_by` says where it ended.
        failures: All rules that it fails, by step, as far as it was measured.
        recipe: The recipe.
    """
    n_bytes = page.n_bytes
    funnel["documents"] += 1
    funnel["bytes"] += n_bytes
    n_failures = sum(map(len, failures.values()))
    last = page.removed_by[0] if page.removed_by is not None else None
    for spec in recipe.steps:
        step = funnel["steps"][spec.name]
        step["documents"] += 1
        step["bytes"] += n_bytes
        n_bytes = page.measurements[spec.name].get("bytes", n_bytes)
        if spec.name == last:
            break
        step["kept_documents"] += 1
        step["kept_bytes"] += n_bytes
    if page.removed_by is None:
        funnel["kept_documents"] += 1
        funnel["kept_bytes"] += n_bytes
        return
    name, rules = page.removed_by
    for rule in rules:
        counts = funnel["steps"][name]["rules"].setdefault(
            rule, {"documents": 0, "bytes": 0, "alone_documents": 0, "alone_bytes": 0}
        )
        counts["documents"] += 1
        counts["bytes"] += n_bytes
        if n_failures == 1:
            counts["alone_documents"] += 1
            counts["alone_bytes"] += n_bytes


def added(funnels: Iterable[Funnel], recipe: Recipe) -> Funnel:
    """Add up statistics; rules are in alphabetical order."""
    total = empty_funnel(recipe)
    for funnel in funnels:
        _add(total, funnel)
    for step in total["steps"].values():
        step["rules"] = dict(sorted(step["rules"].items()))
    return total


def _add(total: dict[str, Any], more: dict[str, Any]) -> None:
    for name, value in more.items():
        if isinstance(value, dict):
            _add(total.setdefault(name, {}), value)  # pyright: ignore[reportUnknownArgumentType]
        else:
            total[name] = total.get(name, 0) + value
