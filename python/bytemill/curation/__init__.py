"""Curation of text before tokenization: duplicates, repeated lines, classifiers, and evaluation items."""

from bytemill.curation.classifier import Features, LinearModel, QualityModel, threshold_at
from bytemill.curation.classifier_training import HeldOut, train_classifier
from bytemill.curation.contamination import ContaminationIndex, Item, Match, overlap_by_item, without_matches
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
    "ContaminationIndex",
    "Features",
    "HeldOut",
    "Item",
    "LineSettings",
    "LinearModel",
    "Match",
    "NearDuplicates",
    "NearIndex",
    "NearSettings",
    "QualityModel",
    "RepeatedUnits",
    "detection_curve",
    "detection_probability",
    "find_near_duplicates",
    "find_repeated_units",
    "overlap_by_item",
    "suggested_bands",
    "threshold_at",
    "train_classifier",
    "without_matches",
    "without_units",
]
