"""Routes of models: generate, sample, surprisal, inside."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from bytemill.errors import BytemillError, CheckpointError, MissingExtraError, RunConfigError
from bytemill.studio.files import Recent, require_regular
from bytemill.studio.library import Entry, NotThereError
from bytemill.studio.models import LoadedModel, checkpoint_paths, model_folders
from bytemill.studio.routes.runs import tokenizer_of
from bytemill.studio.schemas import (
    Alternative,
    AnswerSpec,
    ChatPrompt,
    ChatSpec,
    GenerateSpec,
    HeadResult,
    HeadSpec,
    IdsSpec,
    InsideResult,
    InsideSpec,
    LensToken,
    ModelList,
    ModelSpec,
    ModelSummary,
    PromptSpec,
    PromptTokens,
    Sampling,
    SamplingSpec,
    StageRow,
    Stages,
    SurprisalResult,
    TextSpec,
    packed,
)
from bytemill.studio.state import State, Studio
from bytemill.system.extras import install_hint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from bytemill.lm.generation import chat as lm_chat
    from bytemill.lm.generation.sampling import SamplingParameters
    from bytemill.lm.generation.text_generation import TokenProbability
    from bytemill.lm.inspection import Trace
    from bytemill.lm.training.saved_model import TrainedModel
    from bytemill.studio.jobs import Check
    from bytemill.tokenizer.tokenizer import Tokenizer

router = APIRouter(tags=["models"])

MAX_INSIDE_TOKENS = 512
MAX_TRACES = 2
_THUMBNAIL = 24
_TRACES: Recent[str, Trace] = Recent(MAX_TRACES)
"""The traces that were computed last."""


class ChangedError(BytemillError, ValueError):
    """The files of a model are no longer those that a request was made for."""

    status = 409


@router.get("/models")
def models(studio: Studio) -> ModelList:
    """List the runs that have a checkpoint, and imported models."""
    shelf = studio.library.shelf()
    found: list[ModelSummary] = []
    for entry in (*shelf["runs"].values(), *shelf["models"].values()):
        checkpoints = checkpoint_paths(entry.path)
        if checkpoints or entry.id in shelf["models"]:
            found.append(
                ModelSummary(
                    id=entry.id,
                    name=entry.name,
                    argument=studio.library.argument_of(entry),
                    tokenizer=tokenizer_of(entry, shelf),
                    checkpoints=list(checkpoints),
                    stamps=studio.models.stamps_of(entry, checkpoints),
                )
            )
    return ModelList(models=found)


def _entry(studio: State, model_id: str) -> Entry:
    kind = "runs" if model_id in studio.library.shelf()["runs"] else "models"
    return studio.library.entry(kind, model_id)


def _load(studio: State, model_id: str, spec: ModelSpec) -> LoadedModel:
    entry = _entry(studio, model_id)
    require_regular(_files(entry, spec.checkpoint), entry.root, CheckpointError)
    try:
        loaded = studio.models.load(entry, spec.checkpoint)
    except MissingExtraError as error:
        raise RunConfigError(
            "models need torch, which is not installed", hint=f"install it with: {install_hint('lm')}"
        ) from error
    if isinstance(spec, IdsSpec) and spec.stamp not in (None, loaded.stamp):
        raise ChangedError(
            f"{entry.name} has changed on disk since these tokens were made",
            hint="generate again, to start with the model as it is now",
        )
    return loaded


def _of(loaded: LoadedModel) -> dict[str, Any]:
    """Return the fields of `OfModel`."""
    return {"checkpoint": loaded.checkpoint, "stamp": loaded.stamp}


def _files(entry: Entry, step: int | None) -> list[Path]:
    """Return the files that loading a model reads."""
    checkpoints = checkpoint_paths(entry.path)
    folders = [entry.path]
    if checkpoints:
        folders.append(checkpoints.get(max(checkpoints) if step is None else step, entry.path))
    endings = ("*.json", "*.jinja", "*.safetensors")
    return [path for folder in folders for ending in endings for path in folder.glob(ending)]


@router.post("/models/{model_id}/prompt")
async def prompt(model_id: str, spec: PromptSpec, request: Request, studio: Studio) -> PromptTokens:
    """Encode a prompt; an empty one starts a document."""

    def work(_: Check) -> PromptTokens:
        loaded = _load(studio, model_id, spec)
        trained = loaded.trained
        ids = _prompt_ids(trained, spec.text)
        return PromptTokens(
            **_of(loaded),
            ids=ids,
            tokens=_hex(trained.tokenizer, ids),
            special=[trained.tokenizer.is_special_token(i) for i in ids],
        )

    return await studio.jobs.run(request, work)


@router.post("/models/{model_id}/generate", response_class=StreamingResponse)
async def generate(model_id: str, spec: GenerateSpec, studio: Studio) -> StreamingResponse:
    """Continue ids; a "model" event has the fields of `OfModel`, each "token" event a token and its alternatives."""
    # What is missing is an error of the request, and not an event of the stream.
    await run_in_threadpool(lambda: model_folders(_entry(studio, model_id), spec.checkpoint))

    def work(check: Check) -> Iterator[tuple[str, dict[str, Any]]]:
        from bytemill.lm.generation.decoding import next_tokens
        from bytemill.lm.generation.text_generation import ids_without_token, token_probabilities

        loaded = _load(studio, model_id, spec)
        trained = loaded.trained
        tokenizer = trained.tokenizer
        check()
        yield "model", _of(loaded)
        for token in next_tokens(
            trained.model,
            spec.ids or _prompt_ids(trained, ""),
            spec.max_tokens,
            _parameters(spec.sampling),
            stop_ids=frozenset(tokenizer.special_tokens.values()) if spec.stop_at_special else (),
            seed=spec.seed,
            excluded_ids=ids_without_token(tokenizer, trained.model.config.vocab_size),
        ):
            own, best = token_probabilities(token, tokenizer, spec.n_alternatives)
            yield (
                "token",
                {
                    **_alternative(own),
                    "special": tokenizer.is_special_token(own.id),
                    "window_start": token.window_start,
                    "alternatives": [_alternative(each) for each in best],
                },
            )

    return studio.jobs.stream(work)


@router.post("/models/{model_id}/chat/prompt")
async def chat_prompt(model_id: str, spec: ChatSpec, request: Request, studio: Studio) -> ChatPrompt:
    """Return what the model reads of a conversation; an error if its tokenizer has no chat template."""

    def work(_: Check) -> ChatPrompt:
        entry = _entry(studio, model_id)
        loaded = _load(studio, model_id, spec)
        return _as_tokens(_rendered(entry.name, loaded, spec), loaded)

    return await studio.jobs.run(request, work)


@router.post("/models/{model_id}/chat", response_class=StreamingResponse)
async def chat(model_id: str, spec: AnswerSpec, studio: Studio) -> StreamingResponse:
    """Answer a conversation; a "prompt" event has the fields of `ChatPrompt`, a "token" event a token and its text."""
    entry = _entry(studio, model_id)
    await run_in_threadpool(lambda: model_folders(entry, spec.checkpoint))

    def work(check: Check) -> Iterator[tuple[str, dict[str, Any]]]:
        from bytemill.lm.generation.text_generation import GenerationOptions, generate_text

        loaded = _load(studio, model_id, spec)
        tokenizer = loaded.trained.tokenizer
        prompt = _rendered(entry.name, loaded, spec)
        check()
        yield "prompt", _as_tokens(prompt, loaded).model_dump()
        options = GenerationOptions(
            spec.max_tokens, _parameters(spec.sampling), seed=spec.seed, with_logits=False
        )
        for new in generate_text(loaded.trained.model, tokenizer, prompt.text, options):
            ids = [] if new.token is None else [new.token.id]
            yield (
                "token",
                {
                    "text": new.text,
                    "bytes": _hex(tokenizer, ids)[0] if ids else "",
                    "special": any(map(tokenizer.is_special_token, ids)),
                },
            )

    return studio.jobs.stream(work)


def _rendered(name: str, loaded: LoadedModel, spec: ChatSpec) -> lm_chat.ChatPrompt:
    from bytemill.lm.generation import chat as lm_chat

    trained = loaded.trained
    lm_chat.require_chat_template(trained.tokenizer, name)
    messages = [message.model_dump() for message in spec.messages]
    if not messages:
        return lm_chat.ChatPrompt("", [], 0)
    return lm_chat.chat_prompt(
        trained.tokenizer, messages, trained.model.config.context_length, spec.max_tokens
    )


def _as_tokens(prompt: lm_chat.ChatPrompt, loaded: LoadedModel) -> ChatPrompt:
    tokenizer = loaded.trained.tokenizer
    return ChatPrompt(
        **_of(loaded),
        ids=prompt.ids,
        tokens=_hex(tokenizer, prompt.ids),
        special=[tokenizer.is_special_token(i) for i in prompt.ids],
        n_forgotten=prompt.n_forgotten,
    )


@router.post("/models/{model_id}/sampling")
async def sampling(model_id: str, spec: SamplingSpec, request: Request, studio: Studio) -> Stages:
    """Return the distribution of the next token after each step of sampling."""

    def work(_: Check) -> Stages:
        from bytemill.lm.generation.decoding import next_tokens
        from bytemill.lm.generation.text_generation import ids_without_token
        from bytemill.lm.inspection import sampling_stages

        loaded = _load(studio, model_id, spec)
        trained = loaded.trained
        ids = spec.ids or _prompt_ids(trained, "")
        excluded = ids_without_token(trained.tokenizer, trained.model.config.vocab_size)
        (token,) = next_tokens(trained.model, ids, 1, excluded_ids=excluded, seed=0)
        logits = token.logits
        stages = sampling_stages(logits, _parameters(spec.sampling), ids)
        first, last = stages[0].probabilities, stages[-1].probabilities
        n_best = min(spec.n_tokens, len(logits) - len(excluded))
        best = np.argsort(-logits.numpy(), kind="stable")[:n_best].tolist()
        return Stages(
            **_of(loaded),
            tokens=[
                Alternative(
                    id=i,
                    bytes=trained.tokenizer.decode_single_token_bytes(i).hex(),
                    probability=float(first[i]),
                    sampled=float(last[i]),
                )
                for i in best
            ],
            stages=[
                StageRow(**{**vars(stage), "probabilities": stage.probabilities[best].tolist()})
                for stage in stages
            ],
        )

    return await studio.jobs.run(request, work)


@router.post("/models/{model_id}/surprisal")
async def text_surprisal(model_id: str, spec: TextSpec, request: Request, studio: Studio) -> SurprisalResult:
    """Return the bits of each token of a text."""

    def work(check: Check) -> SurprisalResult:
        from bytemill.lm.inspection import surprisal

        loaded = _load(studio, model_id, spec)
        trained = loaded.trained
        found = surprisal(trained.model, trained.tokenizer, spec.text, bos_id=trained.bos_id, check=check)
        return SurprisalResult(
            **_of(loaded),
            start=None if found.start_id is None else _hex(trained.tokenizer, [found.start_id])[0],
            tokens=_hex(trained.tokenizer, found.ids),
            ids=found.ids,
            window_starts=found.window_starts,
            bits=[None if np.isnan(bits) else float(bits) for bits in found.bits],
            bits_per_byte=found.bits_per_byte,
            n_bytes=found.n_bytes,
            is_evaluated=found.window_starts[-1] <= 0
            and not trained.config.training.document_mask
            and trained.tokenizer.encode(spec.text) == found.ids,
        )

    return await studio.jobs.run(request, work)


@router.post("/models/{model_id}/inside")
async def inside(model_id: str, spec: InsideSpec, request: Request, studio: Studio) -> InsideResult:
    """Trace the window from which the token after a text is predicted, or the first 512 tokens if it has more."""

    def work(check: Check) -> InsideResult:
        from bytemill.lm.generation.text_generation import ids_without_token
        from bytemill.lm.generation.window import window_start
        from bytemill.lm.inspection import trace

        loaded = _load(studio, model_id, spec)
        trained = loaded.trained
        context = trained.model.config.context_length
        whole = _prompt_ids(trained, spec.text)
        start = window_start(len(whole), context)
        is_cut = len(whole) - start > MAX_INSIDE_TOKENS
        if is_cut:
            start = 0
        ids = whole[start : start + MAX_INSIDE_TOKENS]
        digest = hashlib.blake2s(
            f"{studio.started}\n{trained.path}\n{loaded.stamp}\n{ids}".encode(), digest_size=12
        )
        key = digest.hexdigest()
        found = _TRACES.get(key)
        if found is None:
            excluded = ids_without_token(trained.tokenizer, trained.model.config.vocab_size)
            found = trace(trained.model, ids, excluded_ids=excluded, check=check)
            _TRACES.put(key, found)
        counts = range(1, len(ids) + 1)
        # Bytes of the token that begins a document, if the text lacks it.
        n_added = len(
            trained.tokenizer.decode_bytes(whole[: len(whole) - len(trained.tokenizer.encode(spec.text))])
        )
        return InsideResult(
            **_of(loaded),
            key=key,
            ids=ids,
            tokens=_hex(trained.tokenizer, ids),
            special=[trained.tokenizer.is_special_token(i) for i in ids],
            n_before=start,
            first_byte=sum(len(trained.tokenizer.decode_single_token_bytes(i)) for i in whole[:start])
            - n_added,
            is_cut=is_cut,
            n_layers=trained.model.config.num_layers,
            n_heads=trained.model.config.num_heads,
            thumbnail_size=min(_THUMBNAIL, len(ids)),
            thumbnails=packed(_thumbnails(found), "u1"),
            norms=_lists(found.residual_norms),
            lens=_lens(found, trained.tokenizer, [window_start(start + n, context) == start for n in counts]),
        )

    return await studio.jobs.run(request, work)


@router.post("/inside/head")
def head(spec: HeadSpec) -> HeadResult:
    """Return the attention of a head of a trace."""
    found = _TRACES.get(spec.key)
    if found is None:
        raise NotThereError(
            f"the studio has forgotten what it computed: it keeps {MAX_TRACES} texts", hint="compute it again"
        )
    if spec.layer >= len(found.attention) or spec.head >= len(found.attention[spec.layer]):
        raise NotThereError(f"the model has no head {spec.head} in a layer {spec.layer}")
    weights = found.attention[spec.layer][spec.head].numpy()
    return HeadResult(n_tokens=len(weights), weights=packed(weights, "f4"))


def _thumbnails(found: Trace) -> np.ndarray[Any, Any]:
    """Return the attention of all heads, scaled down by the largest value of each cell."""
    n = len(found.ids)
    size = min(_THUMBNAIL, n)
    starts = np.arange(size) * n // size
    images: list[np.ndarray[Any, Any]] = []
    for layer in found.attention:
        weights = layer.numpy()
        weights = weights / np.maximum(weights.max(-1, keepdims=True), 1e-9)
        small = np.maximum.reduceat(np.maximum.reduceat(weights, starts, axis=1), starts, axis=2)
        images.append(np.rint(255 * small).astype(np.uint8))
    return np.stack(images)


def _lens(found: Trace, tokenizer: Tokenizer, is_predicted: Sequence[bool]) -> list[list[list[LensToken]]]:
    known: dict[int, str] = {}

    def token(token_id: int, probability: float) -> LensToken:
        if token_id not in known:
            known[token_id] = tokenizer.decode_single_token_bytes(token_id).hex()
        return LensToken(id=token_id, bytes=known[token_id], probability=probability)

    all_ids: list[list[list[int]]] = _lists(found.lens_ids)
    all_probabilities: list[list[list[float]]] = _lists(found.lens_probabilities)
    return [
        [
            [token(i, p) for i, p in zip(own_ids, own, strict=True)] if predicted else []
            for own_ids, own, predicted in zip(layer_ids, layer, is_predicted, strict=True)
        ]
        for layer_ids, layer in zip(all_ids, all_probabilities, strict=True)
    ]


def _lists(tensor: Any) -> Any:
    return tensor.tolist()


def _prompt_ids(trained: TrainedModel, text: str) -> list[int]:
    from bytemill.lm.generation.text_generation import prompt_ids

    return prompt_ids(trained.tokenizer, text, trained.bos_id)


def _parameters(spec: Sampling) -> SamplingParameters:
    from bytemill.lm.generation.sampling import SamplingParameters

    return SamplingParameters(**spec.model_dump())


def _hex(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    return [tokenizer.decode_single_token_bytes(i).hex() for i in ids]


def _alternative(token: TokenProbability) -> dict[str, Any]:
    return {**vars(token), "bytes": token.bytes.hex()}
