"""Curation of text before tokenization: duplicates, repeated lines, and classifiers of documents."""

from bytemill.curation.classifier import Features, LinearModel, QualityModel, threshold_at
from bytemill.curation.classifier_training import HeldOut, train_classifier
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
    "Features",
    "HeldOut",
    "LineSettings",
    "LinearModel",
    "NearDuplicates",
    "NearIndex",
    "NearSettings",
    "QualityModel",
    "RepeatedUnits",
    "detection_curve",
    "detection_probability",
    "find_near_duplicates",
    "find_repeated_units",
    "suggested_bands",
    "threshold_at",
    "train_classifier",
    "without_units",
]
