"""Well-known data sets for training and evaluation: a catalogue, and downloads that are checked.

>>> [dataset.name for dataset in available()][:2]
['tinystories', 'tinystories-valid']
"""

from bytemill.datasets.catalogue import Dataset, HubFile
from bytemill.datasets.download import DownloadProgress
from bytemill.datasets.getting import available, find, get

__all__ = ["Dataset", "DownloadProgress", "HubFile", "available", "find", "get"]
