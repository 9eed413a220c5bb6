"""The table of data sets: where each one is, how large it is, and by what it is known to be whole."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

HUB = "https://huggingface.co"
GITHUB = "https://raw.githubusercontent.com"

_TINYSTORIES = "datasets/roneneldan/TinyStories/resolve/f54c09fd23315a6f9c86f9dc80f725de7d8f9c64"
_OWT = "datasets/stanford-cs336/owt-sample/resolve/488afadefc224407de5645a3c8c53b64ed923537"
_FINEWEB = "datasets/HuggingFaceFW/fineweb/resolve/9bb295ddab0e05d785b879661af7260fed5140fc"
_HELLASWAG = "rowanz/hellaswag/a29ff8e9a04bba4bd6588223785ce105328adc57/data"

_OWT_LICENCE = (
    "none is named; OpenWebText itself is CC0-1.0 as a collection, its texts belong to their authors"
)


@dataclass(frozen=True)
class Dataset:
    """One file that can be fetched."""

    name: str
    description: str
    licence: str
    homepage: str
    file_name: str
    """What it is called here; the ending says the format."""
    n_bytes: int
    sha256: str
    host: str
    path: str
    """Where it is on the host, at a fixed revision."""

    def url(self, base_url: str | None = None) -> str:
        """Where it is fetched from; `base_url` is a mirror with the same paths."""
        return f"{(base_url or self.host).rstrip('/')}/{self.path}"

    def to_dict(self) -> dict[str, Any]:
        """The entry for JSON."""
        entry = asdict(self) | {"url": self.url()}
        return {name: value for name, value in entry.items() if name not in ("host", "path")}


DATASETS: dict[str, Dataset] = {
    dataset.name: dataset
    for dataset in (
        Dataset(
            "tinystories",
            "2.7 million short stories in simple words, by GPT-4: text, <|endoftext|> between stories",
            "CDLA-Sharing-1.0",
            f"{HUB}/datasets/roneneldan/TinyStories",
            "TinyStoriesV2-GPT4-train.txt",
            2_227_753_162,
            "6418d412de72888f52b5142c761ac21a582f7d1166f0bfbdb5f03ccfdec90443",
            HUB,
            f"{_TINYSTORIES}/TinyStoriesV2-GPT4-train.txt",
        ),
        Dataset(
            "tinystories-valid",
            "27,630 stories more, for validation",
            "CDLA-Sharing-1.0",
            f"{HUB}/datasets/roneneldan/TinyStories",
            "TinyStoriesV2-GPT4-valid.txt",
            22_502_601,
            "6874bae9a4c1a4e7edcf0e53b86c17817e9cf881fc75ff2368da457b80c0585d",
            HUB,
            f"{_TINYSTORIES}/TinyStoriesV2-GPT4-valid.txt",
        ),
        Dataset(
            "fineweb-sample",
            "English web pages: the first file of FineWeb's sample of 10 billion tokens, Parquet, column text",
            "ODC-By 1.0",
            f"{HUB}/datasets/HuggingFaceFW/fineweb",
            "fineweb-10BT-000_00000.parquet",
            2_147_292_183,
            "6b552ea48424648dc86d00df276f93fdfc55e9ad342ce3e4affc23a3a370792b",
            HUB,
            f"{_FINEWEB}/sample/10BT/000_00000.parquet",
        ),
        Dataset(
            "owt-sample",
            "11.9 GB of OpenWebText, as Stanford's CS336 uses it: text, gzip, <|endoftext|> between documents",
            _OWT_LICENCE,
            f"{HUB}/datasets/stanford-cs336/owt-sample",
            "owt_train.txt.gz",
            4_591_240_837,
            "b19ae88cfbc4016b304c348522455fe38ebac48fffed955adcc7191a89e38ccf",
            HUB,
            f"{_OWT}/owt_train.txt.gz",
        ),
        Dataset(
            "owt-sample-valid",
            "290 MB more of it, for validation: text, gzip",
            _OWT_LICENCE,
            f"{HUB}/datasets/stanford-cs336/owt-sample",
            "owt_valid.txt.gz",
            111_785_382,
            "bc73db5da2f19c360836b9c8a88094e13346ec83798c2f40060be39135768c80",
            HUB,
            f"{_OWT}/owt_valid.txt.gz",
        ),
        Dataset(
            "hellaswag",
            "HellaSwag's validation set, 10,042 items: JSON lines, for `bytemill lm eval --hellaswag`",
            "MIT",
            "https://github.com/rowanz/hellaswag",
            "hellaswag_val.jsonl",
            12_246_618,
            "0aa3b88843990f3f10a97b9575c94d7b71fb2205240ba04ae4884d9e9c992588",
            GITHUB,
            f"{_HELLASWAG}/hellaswag_val.jsonl",
        ),
        Dataset(
            "hellaswag-train",
            "HellaSwag's training set, 39,905 items: JSON lines",
            "MIT",
            "https://github.com/rowanz/hellaswag",
            "hellaswag_train.jsonl",
            47_496_131,
            "dae5e69249868cb9fe4e23ff925c60b66169564cfb7072d793cd7356a2b69f8d",
            GITHUB,
            f"{_HELLASWAG}/hellaswag_train.jsonl",
        ),
    )
}
