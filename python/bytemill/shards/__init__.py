"""Token shards: files of ids in several layouts, with a manifest."""

from bytemill.shards.convert import ConvertProgress, convert_shards
from bytemill.shards.corpus_reader import ShardCorpus
from bytemill.shards.encode import encode_corpus
from bytemill.shards.manifest import Manifest, ShardInfo, ShardSettings, SourceInfo, read_manifest
from bytemill.shards.pipeline import EncodeProgress
from bytemill.shards.reader import TokenShards
from bytemill.shards.reencode import reencode_shards, shard_corpus
from bytemill.shards.settings import EncodeSettings
from bytemill.shards.stored_tokens import StoredTokens
from bytemill.shards.verification import verify

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
