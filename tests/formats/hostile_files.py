"""Files made to exhaust a reader's time or memory, and the expected error messages.

As a program, read all of them and print the time and the peak memory of each:

    python tests/formats/hostile_files.py EMPTY_FOLDER
"""

import base64
import json
import re
import resource
import shutil
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bytemill import Tokenizer, TokenizerFileError
from bytemill.formats.byte_level import ALPHABET

RANKS = "".join(f"{base64.b64encode(bytes([i])).decode()} {i}\n" for i in range(256))
VOCAB = {character: byte for byte, character in enumerate(ALPHABET)}
MODEL = "minbpe v1\n\n0\n"
TEKKEN = {
    "config": {"pattern": "a", "default_vocab_size": 2**31, "default_num_special_tokens": 0},
    "vocab": list[object](),
}
PIECE = b"\x0a\x0e\x0a\x05<unk>\x15\x00\x00\x00\x00\x18\x02"
GGUF = b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 21) + b"tokenizer.ggml.tokens"


def pair(vocab: dict[str, object] | str, merges: str) -> dict[str, bytes]:
    text = vocab if isinstance(vocab, str) else json.dumps(VOCAB | vocab)
    return {"vocab.json": text.encode(), "merges.txt": merges.encode()}


def ranks(more: str) -> dict[str, bytes]:
    return {
        "t.tiktoken": (RANKS + more).encode(),
        "t.tiktoken.json": b'{"pat_str": "a", "special_tokens": {}}',
    }


def model(text: str) -> dict[str, bytes]:
    return {"t.model": text.encode()}


def b64(token: bytes) -> str:
    return base64.b64encode(token).decode()


MANY = range(300_000)

HOSTILE: dict[str, tuple[Callable[[], dict[str, bytes]], str]] = {
    # Rank files
    "rank file: a line of 20 MB": (lambda: ranks("A" * 20_000_000 + "\n"), r":257: b'AAAA.*… is not a base64 token"),
    "rank file: 20 MB of line breaks, then damage": (lambda: ranks("\n" * 20_000_000 + "x\n"), ":20000257: b'x'"),
    "rank file: a rank of a million digits": (lambda: ranks(b64(b"ab") + " " + "9" * 10**6 + "\n"), ":257: b'YWI="),
    "rank file: the rank 2^32 - 1": (lambda: ranks(f"{b64(b'ab')} {2**32 - 1}\n"), "out of all proportion"),
    "rank file: wrong base64 in the last of 300,000 lines": (
        lambda: ranks("".join(f"{b64(i.to_bytes(3))} {i + 256}\n" for i in MANY) + "Y$== 9999999\n"),
        r":300257: b'Y\$== 9999999' is not a base64 token",
    ),
    "rank file: a token twice, 300,000 lines apart": (
        lambda: ranks("".join(f"{b64(i.to_bytes(3))} {i + 256}\n" for i in MANY) + "AAAA 9999999\n"),
        r":300257: token b'\\x00\\x00\\x00' appears twice",
    ),
    "rank file: a rank twice": (lambda: ranks(f"{b64(b'ab')} 256\n{b64(b'cd')} 256\n"), "the same rank 256"),
    "rank file: settings of a million brackets": (
        lambda: ranks("") | {"t.tiktoken.json": b"[" * 10**6},
        "t.tiktoken.json: not a tokenizer: its JSON is nested too deeply",
    ),
    "rank file: a pattern of a million groups": (
        lambda: ranks("") | {"t.tiktoken.json": json.dumps({"pat_str": "(a" * 10**6, "special_tokens": {}}).encode()},
        "t.tiktoken.json: pat_str: pattern",
    ),
    "rank file: a pattern of repetitions of repetitions": (
        lambda: (
            ranks("")
            | {"t.tiktoken.json": json.dumps({"pat_str": r"(((\p{L}{999}){999}){999})", "special_tokens": {}}).encode()}
        ),
        "t.tiktoken.json: pat_str: pattern",
    ),
    # GPT-2's two files
    "vocab.json: a million brackets": (lambda: pair('{"a":' * 10**6, ""), "nested too deeply"),
    "vocab.json: an id of a million digits": (lambda: pair('{"a": ' + "9" * 10**6 + "}", ""), "vocab.json: not valid"),
    "vocab.json: the id 2^32 - 1": (lambda: pair({"ab": 2**32 - 1}, "a b\n"), "out of all proportion"),
    "vocab.json: an id of 1e308": (lambda: pair({"ab": 1e308}, "a b\n"), r"\['ab'\] is 1e\+308, not an id"),
    "vocab.json: an id twice": (lambda: pair({"ab": 97}, "a b\n"), "have the same id 97"),
    "vocab.json: a key of 9 MB": (lambda: pair({"日" * 1_500_000: 300}, "a b\n"), "merges.txt:1: 'ab' is not an ordi"),
    "merges.txt: a line of 20 MB": (lambda: pair({}, "#version\n" + "a" * 20_000_000), ":2: 'aaa.*… is not two"),
    "merges.txt: an unknown token after a million line breaks": (
        lambda: pair({"ab": 300}, "#version: 0.2\na b\n" + "\n" * 10**6 + "ab c\n"),
        r"merges.txt:1000003: 'abc' is not an ordinary token",
    ),
    # minbpe's models
    "model: tokens that double, 2^60 bytes": (
        lambda: model(MODEL + "97 97\n" + "".join(f"{i} {i}\n" for i in range(256, 316))),
        r":\d+: the tokens up to this line have \d+ bytes in total",
    ),
    "model: a merge of itself": (lambda: model(MODEL + "97 98\n257 97\n"), ":5: merges token 257"),
    "model: two merges of each other": (lambda: model(MODEL + "257 97\n256 97\n"), ":4: merges token 257"),
    "model: a merge twice": (lambda: model(MODEL + "97 98\n97 98\n"), ":5: produces b'ab', which is already token 256"),
    "model: four million merges": (lambda: model(MODEL + "97 98\n" * 4 * 10**6), "has 4000003 lines"),
    "model: 4,294,967,295 special tokens": (lambda: model(f"minbpe v1\n\n{2**32 - 1}\n"), ":3: announces 4294967295"),
    "model: 2,000 special tokens, each the start of the next": (
        lambda: model("minbpe v1\n\n2000\n" + "".join(f"{'x' * (i + 1)} {i + 256}\n" for i in range(2000))),
        "'x' precedes 'xx', which begins with it",
    ),
    "model: a special token with id 2^32 - 1": (
        lambda: model(f"minbpe v1\n\n1\n<x> {2**32 - 1}\n"), "out of all proportion"
    ),
    "model: a pattern of 20 MB": (lambda: model("minbpe v1\n" + "(" * 20_000_000 + "\n0\n"), ":2: pattern"),
    "model: a line of 20 MB": (lambda: model(MODEL + "1" * 20_000_000 + " 1\n"), ":4: '111.*… is not two ids"),
    # Files that announce more than they have
    "tekken.json: two billion special tokens": (
        lambda: {"tekken.json": json.dumps(TEKKEN).replace("tokens\": 0", f"tokens\": {2**31}").encode()},
        "2147483648 is out of all proportion to the file",
    ),
    "tekken.json: two billion ranks": (
        lambda: {"tekken.json": json.dumps(TEKKEN).encode()}, "does not have the 2147483648 tokens"
    ),
    "SentencePiece: a piece of 2^63 bytes": (
        lambda: {"t.model": PIECE + b"\x0a" + b"\x80" * 9 + b"\x01"}, "9223372036854775808 bytes are announced"
    ),
    "SentencePiece: a number without end": (lambda: {"t.model": PIECE + b"\xff" * 10**6}, "more than 10 bytes"),
    "GGUF: 2^60 strings": (
        lambda: {"t.gguf": GGUF + struct.pack("<IIQ", 9, 8, 2**60)}, "an array of 1152921504606846976 elements"
    ),
    "GGUF: a string of 2^63 bytes": (
        lambda: {"t.gguf": GGUF + struct.pack("<IIQQ", 9, 8, 1, 2**63)}, "needs 9223372036854775808 bytes"
    ),
    "GGUF: two million strings of nothing, then damage": (
        lambda: {"t.gguf": GGUF + struct.pack("<IIQ", 9, 8, 2**21) + bytes(8 * 2**21 - 8) + b"\xff" * 8},
        "needs 18446744073709551615 bytes",
    ),
    # Neither
    "listing of 20 MB": (lambda: {"t.vocab": b"[a] 97\n" * 2_500_000}, "a listing for people"),
    "20 MB of zeros": (lambda: {"t.bin": b"\x00" * 20_000_000}, "unknown format"),
    "20 MB of brackets": (lambda: {"t.json": b"[" * 20_000_000}, "unknown format"),
    "a merges file without its vocabulary": (lambda: {"t.txt": b"#version: 0.2\n" * 10**6}, "merges without"),
}  # fmt: skip


def write(name: str, folder: Path) -> Path:
    """Writes the files of a case and gives the one that is to be loaded."""
    files = HOSTILE[name][0]()
    folder.mkdir(parents=True, exist_ok=True)
    for file, data in files.items():
        (folder / file).write_bytes(data)
    return folder / next(iter(files))


def refusal(path: Path) -> str:
    """What is said where `path` is loaded; raises AssertionError where it can be."""
    try:
        Tokenizer.load(path)
    except TokenizerFileError as error:
        return str(error)
    raise AssertionError(f"{path} is read")


def main(folder: Path) -> int:
    """Read them all; the status is how many are not refused as they should be."""
    n_wrong = 0
    for number, (name, (_, expected)) in enumerate(HOSTILE.items()):
        path = write(name, folder / str(number))
        start = time.process_time()
        said = refusal(path)
        seconds = time.process_time() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        right = re.search(expected, said) is not None and said.startswith(str(path.parent))
        n_wrong += not right
        mark = "" if right else "WRONG "
        print(f"{mark}{seconds:6.2f} s  {peak:5d} MB at most so far  {name}: {said[-100:]!r}")
        shutil.rmtree(path.parent)
    return n_wrong


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
