"""Curation of text before tokenization: recipes and their steps, duplicates, classifiers, and evaluation items."""

from bytemill.corpus.html import PageText, page_text
from bytemill.curation.classifier import Features, LinearModel, QualityModel, threshold_at
from bytemill.curation.classifier_training import HeldOut, train_classifier
from bytemill.curation.contamination import ContaminationIndex, Item, Match, overlap_by_item, without_matches
from bytemill.curation.language import identify_language
from bytemill.curation.lines import LineSettings, RepeatedUnits, find_repeated_units, without_units
from bytemill.curation.mask import mask_emails, mask_ip_addresses, mask_phone_numbers, mask_urls
from bytemill.curation.near import (
    NearDuplicates,
    NearIndex,
    NearSettings,
    detection_curve,
    detection_probability,
    find_near_duplicates,
    suggested_bands,
)
from bytemill.curation.recipe import Recipe
from bytemill.curation.rules import gopher_rules
from bytemill.curation.run import curate, rethreshold

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
    "PageText",
    "QualityModel",
    "Recipe",
    "RepeatedUnits",
    "curate",
    "detection_curve",
    "detection_probability",
    "find_near_duplicates",
    "find_repeated_units",
    "gopher_rules",
    "identify_language",
    "mask_emails",
    "mask_ip_addresses",
    "mask_phone_numbers",
    "mask_urls",
    "overlap_by_item",
    "page_text",
    "rethreshold",
    "suggested_bands",
    "threshold_at",
    "train_classifier",
    "without_matches",
    "without_units",
]
