"""Well-known texts to train and measure on: what there is, and getting it.

>>> [dataset.name for dataset in available()][:2]
['tinystories', 'tinystories-valid']
"""

from bytemill.datasets.catalogue import Dataset
from bytemill.datasets.download import DownloadProgress
from bytemill.datasets.getting import available, get, path_of

__all__ = ["Dataset", "DownloadProgress", "available", "get", "path_of"]
