"""Make the files that the examples of the documentation start from, in the current folder: small ones of every kind."""

import gzip
import json
from pathlib import Path

import zstandard

import bytemill as bm
from bytemill.datasets import DECLARATION

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
    write_crawl()


def write_crawl() -> None:
    """Write two web archives: pages of the Universal Declaration of Human Rights in two languages, and others."""
    english, german = (articles(name) for name in ("eng", "deu_1996"))
    shop = "Buy now! # # # Cheap! # # # Write to sales@example.com or call 283-182-3829 # # #"
    for number in range(2):
        half = english[number::2]
        pages = [("text/html", page(f"Rights, part {n}", text)) for n, text in enumerate(half)]
        pages += [("text/html", page(f"Rechte, Teil {n}", text)) for n, text in enumerate(german[number::4])]
        pages += [("text/html", page("Shop", shop)), ("application/pdf", b"%PDF-1.7")]
        if number:
            pages.append(("text/html", page("Copy", f"{english[0]}\nCopied from elsewhere.")))
        records = [record(f"https://example.org/{number}/{n}", *each) for n, each in enumerate(pages)]
        Path("crawl").mkdir(exist_ok=True)
        Path(f"crawl/{number}.warc.gz").write_bytes(
            b"".join(gzip.compress(each, mtime=0) for each in records)
        )


def articles(language: str) -> list[str]:
    """The declaration in parts of 12 lines."""
    lines = (DECLARATION / f"udhr_{language}.txt").read_text(encoding="utf-8").split("\n")
    whole = [line.strip() for line in lines if len(line) > 60]
    return ["\n".join(whole[start : start + 6]) for start in range(0, len(whole), 6)]


def page(title: str, text: str) -> bytes:
    """A web page with a menu and a footer."""
    paragraphs = "".join(f"<p>{line}</p>" for line in text.split("\n"))
    return (
        f"<html><head><title>{title}</title></head><body><nav><a href='/'>Home</a> <a href='/a'>About</a></nav>"
        f"<main>{paragraphs}<p>Share this page with your friends and family.</p></main>"
        "<footer>All rights reserved</footer></body></html>"
    ).encode()


def record(url: str, content_type: str, data: bytes) -> bytes:
    """A response as a WARC file holds it."""
    response = f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\n\r\n".encode() + data
    head = (
        f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: {url}\r\nWARC-Date: 2024-01-01T00:00:00Z\r\n"
        "WARC-Record-ID: <urn:uuid:00000000-0000-0000-0000-000000000000>\r\n"
        f"Content-Type: application/http; msgtype=response\r\nContent-Length: {len(response)}\r\n\r\n"
    )
    return head.encode() + response + b"\r\n\r\n"


if __name__ == "__main__":
    main()
