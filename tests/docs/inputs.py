"""Make the files that the examples of the documentation start from, in the current folder: small ones of every kind."""

import json
from pathlib import Path

import zstandard

import bytemill as bm

SENTENCES = [
    "Once upon a time there was a mill beside a river.",
    "The miller's daughter counted the bytes that came in with the corn, 1,024 of them a day.",
    "It's a small world, she said, and a smaller vocabulary; naïve cafés included.",
    "Whether it would ever be large enough nobody in the village could tell.",
    "Simple things were common there, and common things were short.",
]
END = "<|endoftext|>"


def main() -> None:
    """Write texts, JSON lines and two tokenizers."""
    stories = [
        "\n".join(SENTENCES[i % 5 :] + SENTENCES[: i % 3]) + f"\nThat was story number {i}.\n"
        for i in range(60)
    ]
    text = END.join(stories)
    for folder in ("data", "web", "wiki"):
        Path(folder).mkdir()
    for name in ("corpus.txt", "stories.txt", "data/one.txt", "data/two.txt", "wiki/one.txt"):
        Path(name).write_text(text, encoding="utf-8")
    for name in ("held-out.txt", "books.txt", "web.txt"):
        Path(name).write_text(text[:4000], encoding="utf-8")
    lines = "".join(json.dumps({"text": story, "id": i}) + "\n" for i, story in enumerate(stories))
    Path("web.jsonl").write_text(lines, encoding="utf-8")
    for name in ("web/one.jsonl.zst", "web/two.jsonl.zst"):
        Path(name).write_bytes(zstandard.compress(lines.encode()))
    bm.train_from_iterator(stories, 400, [END], pattern="cl100k").save("tokenizer.json")
    bm.train_from_iterator(stories[:20], 350, [END], pattern="cl100k").save("published.json")


if __name__ == "__main__":
    main()
