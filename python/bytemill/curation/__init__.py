"""Curation of text before tokenization: near duplicates, and lines that many documents share."""

from bytemill.curation.lines import LineSettings, RepeatedUnits, find_repeated_units, without_units
from bytemill.curation.near import (
    NearDuplicates,
    NearIndex,
    NearSettings,
    detection_curve,
    detection_probability,
    find_near_duplicates,
    suggested_bands,
)

__all__ = [
    "LineSettings",
    "NearDuplicates",
    "NearIndex",
    "NearSettings",
    "RepeatedUnits",
    "detection_curve",
    "detection_probability",
    "find_near_duplicates",
    "find_repeated_units",
    "suggested_bands",
    "without_units",
]
