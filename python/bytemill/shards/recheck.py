"""Compare all text of a corpus with finished shards, by encoding it again."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bytemill.errors import ShardError
from bytemill.shards.encode_parts import encode_parts
from bytemill.shards.lock import OVERWRITE_HINT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bytemill.shards.manifest import Manifest, ShardInfo
    from bytemill.shards.pipeline import EncodeProgress
    from bytemill.shards.settings import EncodingJob


def compare_text(
    job: EncodingJob,
    manifests: Sequence[Manifest],
    progress: Callable[[EncodeProgress], None] | None = None,
) -> list[Manifest]:
    """Encode a corpus again and compare every shard with the manifests. A new shard is removed when it is compared.

    Args:
        job: The encoding.
        manifests: Manifest of each part of the corpus.
        progress: As for `encode_corpus`.

    Returns:
        The manifests with the stamps that the sources have now.

    Raises:
        ShardError: The text is another one; names the first shard that differs.
        CorpusError: The corpus cannot be read.
        OutputError: The temporary folder cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix="bytemill-") as name:
        folder = Path(name)
        n_compared = [0] * len(manifests)

        def compare(index: int, shard: ShardInfo) -> None:
            expected = manifests[index].shards[n_compared[index] :][:1]
            if [_hashes(shard)] != [_hashes(each) for each in expected]:
                raise _differs(shard.file)
            n_compared[index] += 1
            for info in (shard, *shard.sidecars):
                (job.folders(folder)[index] / info.file).unlink()

        for part in job.folders(folder):
            part.mkdir(exist_ok=True)
        found = encode_parts(
            job, folder, None, checkpoint_bytes=sys.maxsize, progress=progress, finished=compare
        )
    for before, now in zip(manifests, found, strict=True):
        if len(before.shards) != len(now.shards):
            raise _differs(before.shards[len(now.shards)].file)
        if before.documents and now.documents and before.documents.sha256 != now.documents.sha256:
            raise _differs(before.documents.file)
    return [_restamped(before, now) for before, now in zip(manifests, found, strict=True)]


def _restamped(before: Manifest, now: Manifest) -> Manifest:
    stamps = [source.stamp for source in now.sources]
    sources = (replace(source, stamp=stamp) for source, stamp in zip(before.sources, stamps, strict=True))
    return replace(before, sources=tuple(sources))


def _hashes(shard: ShardInfo) -> list[str]:
    return [info.sha256 for info in (shard, *shard.sidecars)]


def _differs(file: str) -> ShardError:
    return ShardError(
        f"the text is not that of the shards: {file} would have other content", hint=OVERWRITE_HINT
    )
