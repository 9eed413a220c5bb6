"""The published vocabularies of GPT-2, GPT-4 and GPT-4o in a compact form, and their files restored from it.

A vocabulary is stored as its merges: the 256 bytes in the order of their ids, the ids of all left halves and the ids
of all right halves, compressed with xz. The ids are three byte planes: bits 0-7, bits 8-15, bits 16-23. Merge i makes
token 256 + i, the concatenation of its two halves.
"""

import base64
import hashlib
import itertools
import json
import lzma
from pathlib import Path

SHA256 = {
    "r50k_base.tiktoken": "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930",
    "cl100k_base.tiktoken": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "o200k_base.tiktoken": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "gpt2_vocab.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    "gpt2_merges.txt": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
}
"""SHA-256 of the files as published. A restored file must match it."""

FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]
PLANES = (0, 8, 16)


def pack(tokens: list[bytes]) -> bytes:
    """Compress a vocabulary, in which each token after the 256 bytes is a merge of two earlier ones."""
    ranks = {token: rank for rank, token in enumerate(tokens)}
    merges = [halves(token, ranks) for token in tokens[256:]]
    content = b"".join(tokens[:256])
    for side in (0, 1):
        ids = [ranks[merge[side]] for merge in merges]
        content += b"".join(bytes((i >> shift) & 255 for i in ids) for shift in PLANES)
    return lzma.compress(content, filters=FILTERS)


def halves(token: bytes, ranks: dict[bytes, int]) -> tuple[bytes, bytes]:
    """The two tokens that the last merge of `token` joins: byte pair encoding stopped at two parts."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        pairs = [ranks.get(left + right, len(ranks)) for left, right in itertools.pairwise(parts)]
        at = pairs.index(min(pairs))
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    left, right = parts
    return left, right


def unpack(data: bytes) -> list[bytes]:
    """The tokens in the order of their ids."""
    content = lzma.decompress(data)
    tokens = [content[i : i + 1] for i in range(256)]
    n_merges = (len(content) - 256) // 6
    planes = [content[256 + n * n_merges : 256 + (n + 1) * n_merges] for n in range(6)]
    for l0, l1, l2, r0, r1, r2 in zip(*planes, strict=True):
        tokens.append(tokens[l0 | l1 << 8 | l2 << 16] + tokens[r0 | r1 << 8 | r2 << 16])
    return tokens


def rank_file(tokens: list[bytes]) -> str:
    """A tiktoken rank file: each token in base64 and its rank."""
    return "".join(f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens))


def gpt2_files(tokens: list[bytes]) -> tuple[str, str]:
    """GPT-2's vocab.json and merges.txt, where each byte is a printable character."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}

    def text(token: bytes) -> str:
        return "".join(table[byte] for byte in token)

    vocab = {text(token): rank for rank, token in enumerate(tokens)} | {"<|endoftext|>": len(tokens)}
    ranks = {token: rank for rank, token in enumerate(tokens)}
    merges = (halves(token, ranks) for token in tokens[256:])
    lines = (f"{text(left)} {text(right)}\n" for left, right in merges)
    return json.dumps(vocab), "#version: 0.2\n" + "".join(lines)


def restore(packed: Path, folder: Path) -> None:
    """Write the files of the vocabularies in `packed` into `folder`, exactly as they are published.

    Raises:
        ValueError: If a file differs from the published one.
    """
    files: dict[str, str] = {}
    for path in sorted(packed.glob("*.xz")):
        tokens = unpack(path.read_bytes())
        files[f"{path.stem}.tiktoken"] = rank_file(tokens)
        if path.stem == "r50k_base":
            files["gpt2_vocab.json"], files["gpt2_merges.txt"] = gpt2_files(tokens)
    for name, text in files.items():
        data = text.encode()
        if hashlib.sha256(data).hexdigest() != SHA256[name]:
            raise ValueError(f"{name}: the restored file differs from the published one")
        (folder / name).write_bytes(data)
