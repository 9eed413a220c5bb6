"""Files in object stores: S3, Google Cloud Storage, Azure Blob Storage, and web servers for reading.

Stores have no rename. So data is written under names that no other attempt uses, and then one small file that names
them, which a conditional write lets only one writer create. Who reads trusts that file alone.
"""

from bytemill.storage.files import read_file, write_file
from bytemill.storage.location import is_url, split_url, url_of
from bytemill.storage.store import StoredObject, StoreFolder

__all__ = ["StoreFolder", "StoredObject", "is_url", "read_file", "split_url", "url_of", "write_file"]
