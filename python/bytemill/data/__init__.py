"""Token shards: files of ids in several layouts, with a manifest."""

from bytemill.data.convert import ConvertProgress, convert_shards
from bytemill.data.corpus_reader import ShardCorpus
from bytemill.data.encode import encode_conversations, encode_corpus
from bytemill.data.manifest import Manifest, ShardInfo, ShardSettings, SourceInfo, read_manifest
from bytemill.data.pipeline import EncodeProgress
from bytemill.data.reader import StoredTokens, TokenShards
from bytemill.data.reencode import reencode_shards, shard_corpus
from bytemill.data.settings import EncodeSettings
from bytemill.data.verification import verify

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
    "encode_conversations",
    "encode_corpus",
    "read_manifest",
    "reencode_shards",
    "shard_corpus",
    "verify",
]
