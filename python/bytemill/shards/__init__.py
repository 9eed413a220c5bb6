"""Where tokens go: shards of ids in files that any reader of their layout opens, and the manifest beside them."""

from bytemill.shards.encode import encode_to_shards
from bytemill.shards.manifest import Manifest, ShardInfo, ShardSettings, SourceInfo, read_manifest
from bytemill.shards.pipeline import EncodeProgress
from bytemill.shards.reader import TokenShards, open_shards
from bytemill.shards.verify import verify

__all__ = [
    "EncodeProgress",
    "Manifest",
    "ShardInfo",
    "ShardSettings",
    "SourceInfo",
    "TokenShards",
    "encode_to_shards",
    "open_shards",
    "read_manifest",
    "verify",
]
