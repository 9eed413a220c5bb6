"""Token shards: files of ids in several layouts, with a manifest. The names of `bytemill.data` that are public."""

from bytemill.data import (
    ConvertProgress,
    EncodeProgress,
    EncodeSettings,
    Manifest,
    ShardCorpus,
    ShardInfo,
    ShardSettings,
    SourceInfo,
    StoredTokens,
    TokenShards,
    convert_shards,
    encode_corpus,
    read_manifest,
    reencode_shards,
    shard_corpus,
    verify,
)

__all__ = [
    "ConvertProgress",
    "EncodeProgress",
    "EncodeSettings",
    "Manifest",
    "ShardCorpus",
    "ShardInfo",
    "ShardSettings",
    "SourceInfo",
    "StoredTokens",
    "TokenShards",
    "convert_shards",
    "encode_corpus",
    "read_manifest",
    "reencode_shards",
    "shard_corpus",
    "verify",
]
