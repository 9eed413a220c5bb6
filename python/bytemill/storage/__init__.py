"""Files in object stores: S3, Google Cloud Storage, Azure Blob Storage, and web servers for reading.

Stores have no rename. So data is written under names that no other attempt uses, and then one small file that names
them, which a conditional write lets only one writer create. Who reads trusts that file alone.
"""

from bytemill.storage.files import exists, local_input, local_output, uploaded, write_file
from bytemill.storage.location import is_url, shown, split_url, url_of
from bytemill.storage.store import StoredObject, StoreFolder

__all__ = [
    "StoreFolder",
    "StoredObject",
    "exists",
    "is_url",
    "local_input",
    "local_output",
    "shown",
    "split_url",
    "uploaded",
    "url_of",
    "write_file",
]
