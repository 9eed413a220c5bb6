"""Make the WARC files of the study, and its held-out texts.

    python experiments/curation/archives.py archives

Good pages are the HTML of documentation packages of Debian. As a crawl has them, they are mixed with copies, pages that
are nearly copies, pages in other languages, spam, placeholder text, pages of links and pages that say nothing; and
every page of a site gets the same banners. What is made of which kind is in `kinds.json`, which no step reads.
"""

from __future__ import annotations

import argparse
import hashlib
import html
import io
import json
import random
import re
import sys
from pathlib import Path

from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.texts.packages import fetch, files_of

from bytemill.corpus.html import page_text

DOC = r"/doc/(?!.*/(?:_modules/|_sources/|genindex|search|py-modindex)).*\.html?$"
TRAINING = {
    "python3.11-doc": DOC,
    "python-django-doc": DOC,
    "python-sqlalchemy-doc": DOC,
    "sqlite3-doc": DOC,
    "debian-policy": DOC,
    "developers-reference": r"/developers-reference/[\w-]+\.html$",
}
"""Package of good pages -> the files in it."""
HELD_OUT = {
    "handbook": ("debian-handbook", r"html/en-US/.*\.html$"),
    "postgresql": ("postgresql-doc-15", DOC),
}
"""Domain that models are scored on -> its package, of which no page is in the archives."""
LANGUAGES = ("de-DE", "fr-FR", "es-ES", "ja-JP", "ru-RU", "pt-BR")
MIN_BYTES, MAX_BYTES = 1_500, 60_000
"""Of the text of a good page."""
SHARES = {"spam": 0.35, "copy": 0.2, "near": 0.2, "language": 0.1, "lorem": 0.05, "links": 0.1, "empty": 0.1}
"""Pages of each kind, of the number of good ones."""
BANNER = (
    "<div class=notice><p>We use cookies to improve your experience on {site}. Read our privacy policy.</p>"
    "<p>Subscribe to our newsletter and get 10% off your first order.</p></div>"
)
FOOTER = (
    "<div class=bottom><p>Share this page on social media.</p><p>All rights reserved. Terms of use.</p>"
    "<p>Call 555-0{number:03} or write to info@{site}</p></div>"
)
PRODUCTS = [
    "pills",
    "watches",
    "loans",
    "casino",
    "poker",
    "insurance",
    "mortgage",
    "handbags",
    "replica",
    "viagra",
    "ringtones",
    "diet",
    "software",
]
ADJECTIVES = [
    "cheap",
    "best",
    "free",
    "online",
    "discount",
    "instant",
    "guaranteed",
    "top",
    "new",
    "amazing",
    "secure",
    "fast",
]
FILLER = [
    "buy",
    "now",
    "order",
    "today",
    "lowest",
    "prices",
    "no",
    "fees",
    "click",
    "here",
    "limited",
    "offer",
    "satisfaction",
    "bonus",
    "deal",
    "sale",
]


def main() -> None:
    """Write the archives, the held-out texts and `kinds.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--packages", type=Path, default=Path("~/.cache/bytemill/bench").expanduser())
    parser.add_argument("--pages", type=int, default=1200, help="good pages (1200)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(options.seed)  # noqa: S311
    good = [page for name, files in TRAINING.items() for page in read_pages(options.packages, name, files)]
    good.sort(key=lambda page: hashlib.sha256(page[0].encode()).digest())
    good, examples = good[: options.pages], good[options.pages : options.pages * 3 // 2]
    others = read_pages(options.packages, "debian-handbook", rf"html/(?:{'|'.join(LANGUAGES)})/.*\.html$")
    pages = [("good", site, page) for site, page in good]
    for kind, share in SHARES.items():
        pages += [(kind, *made(kind, draw, good, others)) for _ in range(round(share * len(good)))]
    draw.shuffle(pages)
    write_archives(options.folder, pages)
    for domain, (name, files) in HELD_OUT.items():
        write_held_out(options.folder / f"{domain}.jsonl", read_pages(options.packages, name, files))
    write_examples(options.folder, examples, draw)
    counts = {kind: sum(own == kind for own, _, _ in pages) for kind in ("good", *SHARES)}
    (options.folder / "kinds.json").write_text(json.dumps(counts, indent=2) + "\n")
    print(counts)


def read_pages(cache: Path, package: str, files: str) -> list[tuple[str, str]]:
    """Return the site and the HTML of the pages of a package that have enough text, by path."""
    pattern, pages = re.compile(files), []
    for path, data in files_of(fetch(package, cache), lambda path: bool(pattern.search(path))):
        text = page_text(data, "text/html; charset=utf-8", main_content=True, name=path).text
        if MIN_BYTES <= len(text.encode()) <= MAX_BYTES:
            pages.append((path, data.decode("utf-8", "replace")))
    return [(f"{package}.example/{path}", page) for path, page in sorted(pages)]


def made(
    kind: str, draw: random.Random, good: list[tuple[str, str]], others: list[tuple[str, str]]
) -> tuple[str, str]:
    """Return the address and the HTML of a page of a kind that is not good."""
    number = draw.randrange(10**6)
    if kind == "copy":
        url, page = draw.choice(good)
        return f"mirror{number % 7}.example/{url}", page
    if kind == "near":
        url, page = draw.choice(good)
        words = page.split(" ")
        for _ in range(max(1, len(words) // 200)):
            words[draw.randrange(len(words))] = draw.choice(FILLER)
        return f"archive{number % 5}.example/{url}?print=1", " ".join(words)
    if kind == "language":
        url, page = draw.choice(others)
        return url, page
    site = f"{draw.choice(ADJECTIVES)}-{draw.choice(PRODUCTS)}-{number % 40}.example"
    if kind == "spam":
        paragraphs = [spam(draw) for _ in range(draw.randrange(3, 15))]
    elif kind == "lorem":
        paragraphs = ["Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor."] * 4
    elif kind == "links":
        paragraphs = [
            f"<a href=/{k}>{draw.choice(ADJECTIVES)} {draw.choice(PRODUCTS)}</a>" for k in range(60)
        ]
    else:
        paragraphs = [
            draw.choice(["Page not found", "Please log in to continue.", "This page is under construction."])
        ]
    return f"{site}/{number}", document(f"{draw.choice(ADJECTIVES)} {draw.choice(PRODUCTS)}", paragraphs)


def spam(draw: random.Random) -> str:
    """Return a paragraph: some are lists of keywords, some are sentences that read well."""
    product, adjective = draw.choice(PRODUCTS), draw.choice(ADJECTIVES)
    if draw.random() < 0.5:
        return " ".join(draw.choice((product, adjective, *FILLER)) for _ in range(draw.randrange(20, 80)))
    return (
        f"Our customers love the {adjective} {product} that we have to offer, and you will be happy with the "
        f"{draw.choice(FILLER)} that comes with it. Order {product} today, and we will send them to you with a "
        f"{draw.choice(ADJECTIVES)} {draw.choice(PRODUCTS)} of your choice."
    )


def document(title: str, paragraphs: list[str]) -> str:
    """Return a page."""
    body = "".join(f"<p>{own}</p>" for own in paragraphs)
    return f"<html><head><title>{html.escape(title)}</title></head><body><h1>{title}</h1>{body}</body></html>"


def write_archives(folder: Path, pages: list[tuple[str, str, str]]) -> None:
    """Write four archives of responses, with the banners of each site in its pages."""
    for number in range(4):
        with (folder / f"crawl-{number}.warc.gz").open("wb") as file:
            writer = WARCWriter(file, gzip=True)
            for _, url, page in pages[number::4]:
                site = url.split("/")[0]
                own = int(hashlib.sha256(site.encode()).hexdigest(), 16) % 1000
                banner, footer = BANNER.format(site=site), FOOTER.format(number=own, site=site)
                start = match.end() if (match := re.search(r"<body[^>]*>", page)) else 0
                shown = page[:start] + banner + page[start:].replace("</body>", footer + "</body>")
                headers = StatusAndHeaders(
                    "200 OK", [("Content-Type", "text/html; charset=utf-8")], protocol="HTTP/1.1"
                )
                writer.write_record(
                    writer.create_warc_record(
                        f"http://{url}", "response", payload=io.BytesIO(shown.encode()), http_headers=headers
                    )
                )


def write_held_out(path: Path, pages: list[tuple[str, str]]) -> None:
    """Write the main text of pages."""
    with path.open("w") as file:
        for name, page in pages:
            text = page_text(page.encode(), "text/html; charset=utf-8", main_content=True, name=name).text
            file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")


def write_examples(folder: Path, examples: list[tuple[str, str]], draw: random.Random) -> None:
    """Write examples for the classifier: pages of the kind to keep and spam, none of which is in the archives."""
    write_held_out(folder / "good.jsonl", examples)
    with (folder / "spam.jsonl").open("w") as file:
        for _ in range(len(examples)):
            text = "\n\n".join(spam(draw) for _ in range(draw.randrange(3, 15)))
            file.write(json.dumps({"text": text}) + "\n")


if __name__ == "__main__":
    main()
