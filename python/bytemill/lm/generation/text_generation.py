"""Generate text from a prompt, in whole characters, with the probability of each token."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bytemill.errors import RunConfigError
from bytemill.lm.generation.decoding import NextToken, Precision, next_tokens
from bytemill.lm.generation.sampling import SamplingParameters
from bytemill.lm.model import softmax

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bytemill.lm.generation.speculative import Speculation
    from bytemill.lm.model import TransformerLM
    from bytemill.tokenizer.tokenizer import Tokenizer


class StopStrings:
    """Filter that passes text up to the first stop string, and drops that string and all text after it.

    Text at the end that may be the start of a stop string is held back until more text decides.

    >>> stop = StopStrings(["END"])
    >>> [stop.feed(text) for text in ("one E", "N", "x E", "ND more")], stop.stopped
    (['one ', '', 'ENx ', ''], True)
    """

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = [string for string in strings if string]
        self._held: str = ""
        self.stopped = False
        """Whether a stop string was found."""

    def feed(self, text: str) -> str:
        """Add text, and return the text that is certain to pass."""
        if self.stopped:
            return ""
        text = self._held + text
        starts = [(text.find(string), string) for string in self._strings]
        # The stop string that ends first, so that the result does not depend on how the text is split.
        if found := [(start + len(string), start) for start, string in starts if start >= 0]:
            self.stopped, self._held = True, ""
            return text[: min(found)[1]]
        n_held = max((_overlap(text, string) for string in self._strings), default=0)
        passed, self._held = text[: len(text) - n_held], text[len(text) - n_held :]
        return passed

    def finish(self) -> str:
        """Return the remaining text at the end of the stream."""
        held, self._held = self._held, ""
        return held


class TextStream:
    """Decoder of one sample: takes ids, returns whole characters up to a stop string."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop_strings: Sequence[str] = (),
        *,
        show_special: bool = False,
        n_skipped: int = 0,
    ) -> None:
        self._n_skipped = n_skipped  # characters that are in the prompt already
        self._decoder = tokenizer.stream_decoder()
        self._stop = StopStrings(stop_strings)
        self._hidden = frozenset[int](() if show_special else tokenizer.special_tokens.values())

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found."""
        return self._stop.stopped

    def feed(self, token_id: int) -> str:
        """Add an id, and return the text that it completes; special tokens have no text."""
        if token_id in self._hidden:
            return self._stop.feed(self._decoder.finish())
        text = self._decoder.feed(token_id)
        n_skipped = min(self._n_skipped, len(text))
        self._n_skipped -= n_skipped
        return self._stop.feed(text[n_skipped:])

    def finish(self) -> str:
        """Return the remaining text at the end of the sample."""
        return self._stop.feed(self._decoder.finish()) + self._stop.finish()


def _overlap(text: str, string: str) -> int:
    """Return the length of the longest suffix of `text` that is a proper prefix of `string`."""
    return next((n for n in range(min(len(string) - 1, len(text)), 0, -1) if text.endswith(string[:n])), 0)


@dataclass(frozen=True)
class GenerationOptions:
    """Options of text generation."""

    max_tokens: int = 256
    """Maximum number of tokens per sample."""
    sampling: SamplingParameters = field(default_factory=SamplingParameters)
    stop: tuple[str, ...] = ()
    """A sample ends before the first occurrence of one of these strings."""
    stop_at_special: bool = True
    """End a sample at the first special token."""
    n_samples: int = 1
    seed: int | None = None
    """The same seed gives the same text."""
    use_cache: bool = True
    precision: Precision = "auto"
    with_logits: bool = True
    """Whether tokens have their logits, for `token_probabilities`; a GPU generates text faster without."""
    speculation: Speculation | None = None
    """Have a draft guess tokens; see `generate`."""
    heal: bool = False
    """Take back the last token of the prompt, and have the first new one begin with its text (see `healed`)."""


@dataclass(frozen=True)
class TokenProbability:
    """Probability of a token at one position."""

    id: int
    bytes: bytes
    probability: float
    """Probability according to the model."""
    sampled: float
    """Probability that it was sampled with, after temperature and cut-offs; 0 if it was cut off."""

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON; `bytes` are hexadecimal."""
        text = self.bytes.decode(errors="replace")
        return {**vars(self), "bytes": self.bytes.hex(), "text": text}


@dataclass(frozen=True)
class NewText:
    """A new token, and the text that it completes."""

    sample: int
    token: NextToken | None
    """None for the remaining text at the end of a sample."""
    text: str


def start_id(tokenizer: Tokenizer, bos_id: int | None) -> int | None:
    """Return the id that the first token of a text follows: `bos_id`, else that of `<|endoftext|>`, if there is one."""
    return tokenizer.special_tokens.get("<|endoftext|>") if bos_id is None else bos_id


def prompt_ids(tokenizer: Tokenizer, prompt: str, bos_id: int | None = None) -> list[int]:
    """Encode a prompt, after the token that began every training document, if there was one.

    An empty prompt without such a token becomes `<|endoftext|>`, after which a new document starts.

    Args:
        tokenizer: The tokenizer.
        prompt: The prompt; special tokens in it are recognized.
        bos_id: Id of the token that began every training document.

    Raises:
        RunConfigError: The prompt is empty, and there is no token to start a document with.
    """
    ids = tokenizer.encode(prompt)
    start = start_id(tokenizer, bos_id) if bos_id is not None or not ids else None
    if start is not None and ids[:1] != [start]:
        ids.insert(0, start)
    if not ids:
        raise RunConfigError(
            "the prompt is empty, and the tokenizer has no <|endoftext|> to start a document with",
            hint="give a prompt, for samples during training with `bytemill lm train --run.sample-prompt TEXT`",
        )
    return ids


def healed(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[list[int], list[int] | None, int]:
    """Take back the last token of a prompt, which in a text that goes on might have been the beginning of a longer one.

    A prompt that ends with `http:` is never followed by `//` if the model has seen `://` as one token only.

    Args:
        tokenizer: The tokenizer.
        ids: Ids of the prompt.

    Returns:
        The ids to continue, the ids of tokens that begin with the text of the last one (None if nothing was taken
        back), and the number of characters of that text. Nothing is taken back from a prompt of one token, or if the
        last one is special or holds part of a character.

    Raises:
        RunConfigError: Decoding changes spaces, so that the text of a token is not known.
    """
    if tokenizer.engine != "core" or tokenizer.decode_strip != "none" or tokenizer.joins_tokens:
        raise RunConfigError(
            "healing needs a tokenizer that decodes every token to its own text", hint="leave out --heal"
        )
    text = tokenizer.decode_bytes(ids[-1:])
    try:
        n_characters = len(text.decode())
    except UnicodeDecodeError:
        return list(ids), None, 0
    if len(ids) < 2 or ids[-1] in tokenizer.special_tokens.values():
        return list(ids), None, 0
    return list(ids[:-1]), tokenizer.prefix_ids(text), n_characters


def ids_without_token(tokenizer: Tokenizer, n_ids: int) -> list[int]:
    """Return the ids of a model that belong to no token: gaps in the vocabulary, and padding at its end.

    Args:
        tokenizer: The tokenizer.
        n_ids: Number of ids of the model.
    """
    if len(tokenizer) == tokenizer.n_vocab:  # no gaps
        return list(range(tokenizer.n_vocab, n_ids))
    return sorted(set(range(n_ids)) - tokenizer.vocab.keys())


def generate_text(
    model: TransformerLM,
    tokenizer: Tokenizer,
    prompt: str,
    options: GenerationOptions | None = None,
    *,
    bos_id: int | None = None,
) -> Iterator[NewText]:
    """Continue `prompt` token by token, in whole characters; samples are interleaved.

    Args:
        model: The model.
        tokenizer: Its tokenizer.
        prompt: See `prompt_ids`, also for `bos_id`.
        options: Length, sampling and stops.
        bos_id: Id of the token that began every training document.

    Raises:
        RunConfigError: The prompt is empty, or has ids that the model lacks.
    """
    options = options or GenerationOptions()
    ids, first_ids, n_skipped = prompt_ids(tokenizer, prompt, bos_id), None, 0
    if options.heal:
        ids, first_ids, n_skipped = healed(tokenizer, ids)
    streams = [TextStream(tokenizer, options.stop, n_skipped=n_skipped) for _ in range(options.n_samples)]
    texts: dict[int, str] = {}

    def is_last(token: NextToken) -> bool:
        texts[token.sample] = streams[token.sample].feed(token.id)
        return streams[token.sample].stopped

    for token in next_tokens(
        model,
        ids,
        options.max_tokens,
        options.sampling,
        stop_ids=frozenset(tokenizer.special_tokens.values()) if options.stop_at_special else (),
        n_samples=options.n_samples,
        seed=options.seed,
        use_cache=options.use_cache,
        precision=options.precision,
        with_logits=options.with_logits,
        excluded_ids=ids_without_token(tokenizer, model.config.vocab_size),
        is_last=is_last,
        speculation=options.speculation,
        first_ids=first_ids,
    ):
        yield NewText(token.sample, token, texts[token.sample])
    for sample, stream in enumerate(streams):
        if remaining := stream.finish():
            yield NewText(sample, None, remaining)


def sample_text(
    model: TransformerLM, tokenizer: Tokenizer, prompt: str, max_tokens: int, seed: int = 0
) -> str:
    """Return one continuation of `prompt`, at temperature 0.8 and top-p 0.95. Raises as `generate_text`."""
    sampling = SamplingParameters(temperature=0.8, top_p=0.95)
    options = GenerationOptions(max_tokens=max_tokens, sampling=sampling, seed=seed, with_logits=False)
    return "".join(own.text for own in generate_text(model, tokenizer, prompt, options))


def token_probabilities(
    token: NextToken, tokenizer: Tokenizer, n_alternatives: int = 0
) -> tuple[TokenProbability, list[TokenProbability]]:
    """Return the probability of a token, and those of the `n_alternatives` most likely tokens at its position."""
    probabilities, sampled = softmax(token.logits, 0), token.log_probabilities.exp()

    def of(token_id: int) -> TokenProbability:
        token_bytes = tokenizer.decode_single_token_bytes(token_id)
        return TokenProbability(
            token_id, token_bytes, float(probabilities[token_id]), float(sampled[token_id])
        )

    n_tokens = int((token.logits > -math.inf).sum())
    best = probabilities.topk(min(n_alternatives, n_tokens)).indices
    return of(token.id), [of(int(token_id)) for token_id in best]
