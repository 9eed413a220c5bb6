"""How well do own tokenizers compress, beside GPT-2's, GPT-4's and GPT-4o's, on text of their kind and of others?

    python run.py english=english.txt code=code.txt multilingual=multilingual.txt --folder study

Each text is one file. Its first nine tenths, up to 40 MB, train a tokenizer of each size, and equal parts of all texts
train those called mixed; the last tenth, up to 5 MB, is measured. The result is a table and a page with heat maps.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import bytemill as bm

PUBLISHED = ("gpt2", "cl100k_base", "o200k_base")
SIZES = (4096, 16_384, 65_536)
TRAIN_BYTES, HELD_OUT_BYTES = 40_000_000, 5_000_000


def parts(path: str) -> tuple[str, str]:
    """Return the text to train on, and the text to measure, cut at lines."""
    data = Path(path).read_bytes()
    middle = data.rfind(b"\n", 0, len(data) * 9 // 10) + 1
    train, held_out = data[: min(middle, TRAIN_BYTES)], data[middle : middle + HELD_OUT_BYTES]
    cut = [own[: own.rfind(b"\n") + 1].decode(errors="replace") for own in (train, held_out)]
    return cut[0], cut[1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("texts", nargs="+", metavar="NAME=FILE")
    parser.add_argument("--folder", default="study", help="folder for tokenizers and results")
    options = parser.parse_args()
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    texts = {name: parts(path) for name, _, path in (own.partition("=") for own in options.texts)}
    sources = {name: train for name, (train, _) in texts.items()}
    sources["mixed"] = "".join(train[: len(train) // len(texts)] for train in sources.values())
    tokenizers = {name: bm.Tokenizer.from_pretrained(name) for name in PUBLISHED}
    for name, text in sources.items():
        largest = folder / f"{name}.json"
        if not largest.exists():
            print(f"training {name}", flush=True)
            corpus = bm.Corpus.from_texts([text])
            bm.train(corpus, max(SIZES), ["<|endoftext|>"], pattern="cl100k").save(largest)
        tokenizer = bm.Tokenizer.load(largest)
        # The first merges of a tokenizer are the tokenizer of a smaller training.
        tokenizers |= {f"{name} {size // 1024}k": tokenizer.truncate(size) for size in SIZES}
    groups = {name: bm.Corpus.from_texts([held_out]) for name, (_, held_out) in texts.items()}
    comparison = bm.compare(tokenizers, groups, ngram_bytes=HELD_OUT_BYTES)
    for suffix in ("html", "json", "md"):
        comparison.save(folder / f"compression.{suffix}")
    print(f"{folder / 'compression.html'}")


if __name__ == "__main__":
    main()
