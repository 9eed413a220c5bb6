"""What the browser and the server exchange. TypeScript types are generated from these.

Arrays are little-endian bytes in base64. All supported machines are little-endian.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import numpy as np
from fastapi.responses import StreamingResponse
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

Packed = Annotated[str, Field(description="little-endian numbers in base64")]
TokenizerId = Annotated[str, Field(max_length=64)]
Count = Annotated[int, Field(ge=0)]
Stamp = Annotated[str, Field(description="changes when the files change that something was loaded from")]


class Message(BaseModel):
    """Base of all messages: unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Status(Message):
    """What the page needs to know first."""

    version: str
    started: str
    root: str | None
    has_models: bool
    """Whether torch is installed."""
    library: str
    """Changes when the lists of tokenizers, texts and models do, or the files of one that was opened."""


class Queued(Message):
    """How many jobs wait before one; null if it does not wait."""

    before: int | None


class Named(Message):
    """Something that can be opened."""

    id: str
    name: str
    origin: Literal["named", "bundled", "published", "found", "run"]
    stamp: Stamp | None
    """Null if nobody has opened it."""


class SourceList(Message):
    """Everything that can be opened."""

    tokenizers: list[Named]
    texts: list[Named]


class TokenizerSummary(Message):
    """A tokenizer."""

    id: str
    stamp: Stamp
    name: str
    argument: str
    """How the command line and Python name it."""
    n_vocab: int
    n_tokens: int
    n_special: int
    pattern: str | None
    pattern_name: str | None
    normalizer: str | None
    fingerprint: str
    smallest_size: int | None
    """The smallest size that it can be truncated to; null if it cannot."""
    special: dict[str, int]


class VocabularyColumns(Message):
    """A vocabulary: see `vocabulary_table`."""

    stamp: Stamp
    n_vocab: int
    data: Packed
    lengths: Packed
    left: Packed
    right: Packed
    ranks: Packed
    counts: list[int] | None
    special: dict[str, int]


class ViewSpec(Message):
    """How a text is encoded."""

    tokenizer: TokenizerId
    special: bool = True
    vocab_size: Annotated[int, Field(ge=1, le=1 << 24)] | None = None


class NewText(Message):
    """A text, or the id of one that the server has."""

    text: str | None = None
    source: Annotated[str, Field(max_length=64)] | None = None


class TextOpened(Message):
    """A text that can be edited."""

    id: str
    version: int
    n_bytes: int
    name: str | None = None
    text: str | None = None
    """The content, if the server had it."""
    stamp: Stamp | None = None
    """Of its file, if the server had it."""


class EditSpec(Message):
    """Replace code points."""

    start: Count
    end: Count
    text: str


class TextEdit(Message):
    """Edits of a version, and the views whose ids are wanted."""

    version: int
    edits: Annotated[list[EditSpec], Field(max_length=1000)]
    views: Annotated[list[ViewSpec], Field(max_length=6)]


class IdsChanged(Message):
    """A change of ids: see `IdsChange`."""

    stamp: Stamp
    start: int
    n_removed: int
    ids: Packed
    n_tokens: int


class TextEdited(Message):
    """The result of edits."""

    version: int
    n_bytes: int
    views: list[IdsChanged]


class Ids(Message):
    """All ids of a text."""

    stamp: Stamp
    version: int
    n_bytes: int
    ids: Packed


class ExplainSpec(ViewSpec):
    """A part of a text whose merges are wanted, in bytes."""

    text: Annotated[str, Field(max_length=20_000)]


class Step(Message):
    """A merge: see `MergeStep`."""

    rank: int
    at: int


class PreToken(Message):
    """A pre-token: its bytes in hexadecimal, and its merges in order."""

    bytes: str
    special: bool
    ids: list[int]
    steps: list[Step]


class Explained(Message):
    """The pre-tokens of a text."""

    stamp: Stamp
    pretokens: list[PreToken]


class ComparisonSpec(Message):
    """A comparison on a text."""

    text: Annotated[str, Field(max_length=64)]
    tokenizers: Annotated[list[TokenizerId], Field(min_length=2, max_length=6)]


class FigureValue(Message):
    """A figure of a tokenizer, with its 95 % interval."""

    value: float | None
    low: float | None
    high: float | None
    shown: str


class FigureRow(Message):
    """A figure of all tokenizers."""

    name: str
    title: str
    formula: str
    blind_to: str
    better: Literal["higher", "lower"] | None
    best: int | None
    """Index of the tokenizer that is shown to be better than all others."""
    values: list[FigureValue]


class Languages(Message):
    """Tokens for the same content, relative to a reference language."""

    reference: str
    languages: list[str]
    premiums: list[list[float | None]]
    """By tokenizer and language."""
    gini: list[float | None]


class Compared(Message):
    """The result of a comparison, in the order of the tokenizers."""

    names: list[str]
    stamps: list[Stamp]
    n_bytes: int
    figures: list[FigureRow]
    languages: Languages


class RunSummary(Message):
    """A run folder."""

    id: str
    name: str
    argument: str
    seconds_since_change: float
    is_finished: bool
    """The checkpoint of the last step is there."""
    checkpoints: list[int]
    tokenizer: str | None
    """Id of its tokenizer."""
    config: dict[str, Any]
    """The settings, by dotted name."""


class RunList(Message):
    """All runs and studies."""

    runs: list[RunSummary]
    studies: list[Named]


class SkippedFile(Message):
    """A file or folder that was found and cannot be read."""

    name: str
    reason: str


class SkippedList(Message):
    """What was left out, or the first part of it."""

    n_skipped: int
    skipped: list[SkippedFile]


class Metrics(Message):
    """New records of a run: see `NewMetrics`."""

    cursor: str
    is_reset: bool
    columns: dict[str, Packed]
    others: dict[str, list[dict[str, Any]]]


class TrainingExample(Message):
    """A conversation that a run is trained on, or its first tokens."""

    n_tokens: int
    tokens: list[str]
    """In hexadecimal."""
    special: list[bool]
    is_target: list[bool]


class ExampleSet(Message):
    """The first conversations of a shard folder."""

    name: str
    n_conversations: int
    examples: list[TrainingExample]


class TrainingExamples(Message):
    """Conversations that a run is trained on. Of pairs there are two sets, with the same order."""

    sets: list[ExampleSet]


class ModelSummary(Message):
    """A model that can be loaded."""

    id: str
    name: str
    argument: str
    """How the command line and Python name it."""
    tokenizer: str | None
    checkpoints: list[int]
    stamps: dict[str, Stamp]
    """Of the checkpoints that were loaded, by step; of an imported model under the empty string."""


class ModelList(Message):
    """All models."""

    models: list[ModelSummary]


class ModelSpec(Message):
    """A model, or one of its checkpoints."""

    checkpoint: Annotated[int, Field(ge=0)] | None = None


class OfModel(Message):
    """What was computed with a model."""

    checkpoint: int | None
    """Step of the checkpoint; null for an imported model."""
    stamp: Stamp


LEAST_TEMPERATURE = 0.01


def _temperature(value: float) -> float:
    if 0 < value < LEAST_TEMPERATURE:
        raise ValueError(f"{value:g} is too small: choose 0, or {LEAST_TEMPERATURE} or more")
    return value


class Sampling(Message):
    """See `SamplingParameters`."""

    repetition_penalty: Annotated[float, Field(ge=0.01, le=10)] = 1.0
    no_repeat_ngram: Annotated[int, Field(ge=0, le=64)] = 0
    temperature: Annotated[float, Field(ge=0, le=100), AfterValidator(_temperature)] = 1.0
    top_k: Annotated[int, Field(ge=0, le=1 << 24)] = 0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0


TokenIds = Annotated[list[Count], Field(max_length=16_384)]


class IdsSpec(ModelSpec):
    """Ids of a model."""

    ids: TokenIds
    stamp: Annotated[str, Field(max_length=64)] | None = None
    """Stamp of the model that made the ids: if its files have changed, that is an error."""


class GenerateSpec(IdsSpec):
    """Continue ids, which may be empty: the model then starts a document."""

    sampling: Sampling = Sampling()
    max_tokens: Annotated[int, Field(ge=1, le=2048)] = 64
    n_alternatives: Annotated[int, Field(ge=0, le=50)] = 10
    seed: Annotated[int, Field(ge=0, lt=1 << 62)] | None = None
    stop_at_special: bool = True


class PromptSpec(ModelSpec):
    """A prompt to encode."""

    text: Annotated[str, Field(max_length=50_000)]


class PromptTokens(OfModel):
    """The tokens of a prompt, and the model's tokenizer."""

    ids: list[int]
    tokens: list[str]
    """In hexadecimal."""
    special: list[bool]


class ChatMessage(Message):
    """A message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: Annotated[str, Field(max_length=50_000)]


class ChatSpec(ModelSpec):
    """A conversation to answer. Without messages, nothing is read."""

    messages: Annotated[list[ChatMessage], Field(max_length=1000)]
    max_tokens: Annotated[int, Field(ge=1, le=2048)] = 64


class AnswerSpec(ChatSpec):
    """How to answer."""

    sampling: Sampling = Sampling()
    seed: Annotated[int, Field(ge=0, lt=1 << 62)] | None = None


class ChatPrompt(PromptTokens):
    """What the model reads of a conversation: see `lm.generation.chat`."""

    n_forgotten: int


class Alternative(Message):
    """A token that could have come."""

    id: int
    bytes: str
    probability: float
    """According to the model."""
    sampled: float
    """After temperature and cut-offs."""


class SamplingSpec(IdsSpec):
    """A position whose next token is looked at."""

    sampling: Sampling = Sampling()
    n_tokens: Annotated[int, Field(ge=1, le=100)] = 20


class StageRow(Message):
    """The distribution after a step of sampling."""

    name: str
    is_active: bool
    n_kept: int
    entropy_bits: float
    probabilities: list[float]
    """Of the tokens of the result, in their order."""


class Stages(OfModel):
    """All stages."""

    tokens: list[Alternative]
    stages: list[StageRow]


class TextSpec(ModelSpec):
    """A text to look at with a model."""

    text: Annotated[str, Field(min_length=1, max_length=100_000)]


class SurprisalResult(OfModel):
    """Bits of each token."""

    start: str | None
    """The token that the text follows, in hexadecimal."""
    tokens: list[str]
    """In hexadecimal."""
    ids: list[int]
    window_starts: list[int]
    """Index of the first token that each is predicted from; −1 is `start`."""
    bits: list[float | None]
    bits_per_byte: float | None
    n_bytes: int
    is_evaluated: bool
    """`bytemill lm eval` gives the same bits per byte: there is one window, and no special token in the text."""


class InsideSpec(ModelSpec):
    """A text to trace."""

    text: Annotated[str, Field(min_length=1, max_length=20_000)]


class LensToken(Message):
    """A likely token of the logit lens."""

    id: int
    bytes: str
    probability: float


class InsideResult(OfModel):
    """The trace of a text, but for the attention of single heads."""

    key: str
    """Names the trace for `head`."""
    ids: list[int]
    tokens: list[str]
    special: list[bool]
    n_before: int
    """Tokens before the window."""
    first_byte: int
    """Position of the first token in the bytes of the text; negative for one that the text follows."""
    is_cut: bool
    """The window has too many tokens, so that these are the first ones of the text."""
    n_layers: int
    n_heads: int
    thumbnail_size: int
    thumbnails: Packed
    """(n_layers, n_heads, size, size) in bytes: attention, each row relative to its largest value."""
    norms: list[list[float]]
    """(n_layers + 1, n_tokens)."""
    lens: list[list[list[LensToken]]]
    """(n_layers + 1, n_tokens, up to 5); empty for tokens that the window before predicts."""


class HeadSpec(Message):
    """A head of a trace."""

    key: Annotated[str, Field(max_length=64)]
    layer: Count
    head: Count


class HeadResult(Message):
    """The attention of a head: (n_tokens, n_tokens) of float32."""

    n_tokens: int
    weights: Packed


_BLOCK = 3 << 18
"""Bytes that are packed at a time: a multiple of three, so that the parts join without padding."""


def packed(array: NDArray[Any], dtype: str) -> str:
    """Return an array as base64 of little-endian numbers.

    >>> import numpy as np
    >>> packed(np.array([1, 258]), "u4")
    'AQAAAAIBAAA='
    """
    return base64.b64encode(np.ascontiguousarray(array, dtype=f"<{dtype}").tobytes()).decode("ascii")


def large_response(value: Any) -> StreamingResponse:
    """Return an answer in JSON whose arrays and bytes are packed while they are sent, so that none is copied whole.

    >>> import numpy as np
    >>> parts = _json_parts({"n": 1, "views": [{"ids": np.array([1, 258], np.uint32), "data": b"ab"}], "none": []})
    >>> b"".join(parts)
    b'{"n":1,"views":[{"ids":"AQAAAAIBAAA=","data":"YWI="}],"none":[]}'
    >>> b"".join(_json_parts({"ids": np.zeros(0, np.uint32), "special": {}}))
    b'{"ids":"","special":{}}'
    """
    return StreamingResponse(_json_parts(value), media_type="application/json")


def _json_parts(value: Any) -> Iterator[bytes]:
    match value:
        case bytes() | np.ndarray():
            view: memoryview[Any] = memoryview(cast("Any", value))
            data = view.cast("B") if view.nbytes else b""  # an empty view cannot be cast
            yield b'"'
            for start in range(0, len(data), _BLOCK):
                yield base64.b64encode(data[start : start + _BLOCK])
            yield b'"'
        case dict():
            separator = b"{"
            for name, own in cast("dict[str, Any]", value).items():
                yield separator + json.dumps(name).encode() + b":"
                yield from _json_parts(own)
                separator = b","
            yield b"}" if value else b"{}"
        case [{}, *_]:
            separator = b"["
            for own in cast("list[Any]", value):
                yield separator
                yield from _json_parts(own)
                separator = b","
            yield b"]"
        case _:
            yield json.dumps(value).encode()
