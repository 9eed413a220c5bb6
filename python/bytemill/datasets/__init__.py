"""Well-known data sets for training and evaluation: a catalogue, and downloads that are checked.

>>> [dataset.name for dataset in available()][:2]
['tinystories', 'tinystories-valid']
"""

from pathlib import Path

from bytemill.datasets.catalogue import Dataset, HubFile
from bytemill.datasets.fetch import DownloadProgress, available, find, get
from bytemill.datasets.python_docs import python_documents

__all__ = [
    "DECLARATION",
    "Dataset",
    "DownloadProgress",
    "HubFile",
    "available",
    "find",
    "get",
    "python_documents",
]

DECLARATION = Path(__file__).parent / "udhr"
"""Folder of the Universal Declaration of Human Rights in 23 languages, from the project "UDHR in Unicode".

`compare(..., parallel=DECLARATION)` shows what a tokenizer costs each language.
"""
