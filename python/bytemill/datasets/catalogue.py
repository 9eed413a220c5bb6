"""The catalogue of data sets: source, size, checksum and licence of each."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class HubFile:
    """A file in a data set repository of the Hugging Face hub."""

    repository: str
    revision: str
    """Commit, so that the content cannot change."""
    path: str

    @property
    def url(self) -> str:
        """Download URL."""
        return f"https://huggingface.co/datasets/{self.repository}/resolve/{self.revision}/{self.path}"


@dataclass(frozen=True)
class Dataset:
    """One downloadable file."""

    name: str
    description: str
    licence: str
    homepage: str
    file_name: str
    """Name of the local file; the suffix states the format."""
    n_bytes: int
    sha256: str
    source: HubFile | str
    """A file on the hub, or a URL at a fixed revision."""

    @property
    def url(self) -> str:
        """Download URL."""
        return self.source if isinstance(self.source, str) else self.source.url

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types."""
        return {name: value for name, value in asdict(self).items() if name != "source"} | {"url": self.url}


_TINYSTORIES = ("roneneldan/TinyStories", "f54c09fd23315a6f9c86f9dc80f725de7d8f9c64")
_OWT = ("stanford-cs336/owt-sample", "488afadefc224407de5645a3c8c53b64ed923537")
_FINEWEB = ("HuggingFaceFW/fineweb", "9bb295ddab0e05d785b879661af7260fed5140fc")
_HELLASWAG = (
    "https://raw.githubusercontent.com/rowanz/hellaswag/a29ff8e9a04bba4bd6588223785ce105328adc57/data"
)
_OWT_LICENCE = "not stated; OpenWebText is CC0-1.0 as a collection, its texts belong to their authors"

DATASETS: dict[str, Dataset] = {
    dataset.name: dataset
    for dataset in (
        Dataset(
            "tinystories",
            "2.7 million short stories in simple words, by GPT-4: text, <|endoftext|> between stories",
            "CDLA-Sharing-1.0",
            "https://huggingface.co/datasets/roneneldan/TinyStories",
            "TinyStoriesV2-GPT4-train.txt",
            2_227_753_162,
            "6418d412de72888f52b5142c761ac21a582f7d1166f0bfbdb5f03ccfdec90443",
            HubFile(*_TINYSTORIES, "TinyStoriesV2-GPT4-train.txt"),
        ),
        Dataset(
            "tinystories-valid",
            "27,630 more stories, for validation",
            "CDLA-Sharing-1.0",
            "https://huggingface.co/datasets/roneneldan/TinyStories",
            "TinyStoriesV2-GPT4-valid.txt",
            22_502_601,
            "6874bae9a4c1a4e7edcf0e53b86c17817e9cf881fc75ff2368da457b80c0585d",
            HubFile(*_TINYSTORIES, "TinyStoriesV2-GPT4-valid.txt"),
        ),
        Dataset(
            "fineweb-sample",
            "English web pages: the first file of FineWeb's sample of 10 billion tokens, Parquet, column text",
            "ODC-By 1.0",
            "https://huggingface.co/datasets/HuggingFaceFW/fineweb",
            "fineweb-10BT-000_00000.parquet",
            2_147_292_183,
            "6b552ea48424648dc86d00df276f93fdfc55e9ad342ce3e4affc23a3a370792b",
            HubFile(*_FINEWEB, "sample/10BT/000_00000.parquet"),
        ),
        Dataset(
            "owt-sample",
            "11.9 GB of OpenWebText, as Stanford's CS336 uses it: text, gzip, <|endoftext|> between documents",
            _OWT_LICENCE,
            "https://huggingface.co/datasets/stanford-cs336/owt-sample",
            "owt_train.txt.gz",
            4_591_240_837,
            "b19ae88cfbc4016b304c348522455fe38ebac48fffed955adcc7191a89e38ccf",
            HubFile(*_OWT, "owt_train.txt.gz"),
        ),
        Dataset(
            "owt-sample-valid",
            "290 MB more of it, for validation: text, gzip",
            _OWT_LICENCE,
            "https://huggingface.co/datasets/stanford-cs336/owt-sample",
            "owt_valid.txt.gz",
            111_785_382,
            "bc73db5da2f19c360836b9c8a88094e13346ec83798c2f40060be39135768c80",
            HubFile(*_OWT, "owt_valid.txt.gz"),
        ),
        Dataset(
            "hellaswag",
            "HellaSwag's validation set, 10,042 items: JSON lines, for `bytemill lm eval --hellaswag`",
            "MIT",
            "https://github.com/rowanz/hellaswag",
            "hellaswag_val.jsonl",
            12_246_618,
            "0aa3b88843990f3f10a97b9575c94d7b71fb2205240ba04ae4884d9e9c992588",
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
            f"{_HELLASWAG}/hellaswag_train.jsonl",
        ),
    )
}
