"""Sidecar files of a tokenizer: what the files beside a tokenizer.json, or beside vocab.json and merges.txt, add to it.

- `tokenizer_config.json`: the class (which of its own code transformers runs), names of special tokens, tokens with
  their flags (`added_tokens_decoder`), `add_prefix_space`, the chat template, the maximum length;
- `special_tokens_map.json` and `added_tokens.json`: names and tokens in older folders;
- `config.json`: the model, which tells the class if the tokenizer has none;
- `chat_template.jinja`.

Tokens and flags are those of `AutoTokenizer.from_pretrained` in transformers 5, source:
`PreTrainedTokenizerBase._from_pretrained` and `TokenizersBackend.__init__`. Classes rebuild a tokenizer from the
vocabulary and the merges alone. Beside a tokenizer.json, bytemill follows that file instead, and warns if the class
contradicts it.
"""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from bytemill._core import named_pattern
from bytemill.errors import PreTokenizerWarning, TokenizerFileError
from bytemill.formats.files import (
    SIDECAR_FILES,
    check_id,
    is_array,
    is_object,
    object_at,
    parse_json,
    read_text,
    shown,
)
from bytemill.formats.huggingface.parts import check_depth, flags_at
from bytemill.formats.huggingface.pre_tokenizers import PREFIX
from bytemill.formats.spec import TokenFlags, TokenizerMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping
    from pathlib import Path

    from bytemill.formats.spec import NormalizerSteps

CONFIG, MAP, TEMPLATE, ADDED, MODEL_CONFIG = SIDECAR_FILES
_MAX_BYTES = 1 << 26

NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""Roles of special tokens. Further keys that end with `_token` name tokens too."""


@dataclass(frozen=True)
class TokenizerClass:
    """What a class of transformers makes of vocab.json and merges.txt."""

    pattern: str
    """Name of the pattern."""
    names: Mapping[str, str]
    """Special tokens by role where the configuration names none."""
    model_types: tuple[str, ...]
    """`model_type` of the models that use the class."""
    normalizer: NormalizerSteps = ()
    joins_like_roberta: bool = False
    """Put `cls_token` and `sep_token` around texts."""
    resets_flags: bool = False
    """Give all special tokens the default flags."""


_END = "<|endoftext|>"
_GPT2 = {"bos_token": _END, "eos_token": _END, "unk_token": _END}
_ROBERTA = TokenizerClass(
    "gpt2",
    {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "sep_token": "</s>", "pad_token": "<pad>"}
    | {"cls_token": "<s>", "mask_token": "<mask>"},
    ("bart", "led", "longformer", "mvp", "roberta"),
    joins_like_roberta=True,
)
CLASSES = {
    "CodeGenTokenizer": TokenizerClass("gpt2", _GPT2, ()),
    "GPT2Tokenizer": TokenizerClass(
        "gpt2", _GPT2, ("codegen", "gpt2", "gpt_neo", "gptj", "opt", "phi", "starcoder2")
    ),
    "GPTNeoXTokenizer": TokenizerClass(
        "gpt2", _GPT2 | {"pad_token": "<|padding|>"}, ("gpt_neox",), normalizer=(("NFC",),)
    ),
    "Qwen2Tokenizer": TokenizerClass(
        "qwen2",
        {"eos_token": _END, "unk_token": _END, "pad_token": _END},
        ("qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "qwen3", "qwen3_moe", "qwen3_next", "qwen3_vl"),
        normalizer=(("NFC",),),
        resets_flags=True,
    ),
    **dict.fromkeys(
        ("BartTokenizer", "LEDTokenizer", "LongformerTokenizer", "MvpTokenizer", "RobertaTokenizer"), _ROBERTA
    ),
}
"""The classes that bytemill knows, without `Fast` at the end."""


@dataclass(frozen=True)
class Sidecars:
    """The contents of the sidecar files of a folder."""

    folder: Path
    config: dict[str, Any] | None = None
    special_tokens_map: dict[str, Any] | None = None
    chat_template: str | None = None
    added: dict[str, Any] = field(default_factory=dict[str, Any])
    """added_tokens.json: ids by text."""
    class_name: str | None = None
    """The class, without `Fast`; None if no file names one."""

    @classmethod
    def beside(cls, folder: Path, *, of_model: bool = False) -> Sidecars:
        """Read the sidecar files in a folder.

        Args:
            folder: The folder.
            of_model: Take the class from the model's config.json, if the tokenizer's configuration names none.

        Raises:
            TokenizerFileError: A file is damaged; `transformers` could not read it either.
        """
        config, template_path = _object_in(folder / CONFIG), folder / TEMPLATE
        name = _class_name(config or {})
        if name is None and of_model:
            name = _class_of_model(_object_in(folder / MODEL_CONFIG) or {})
        return cls(
            folder,
            config,
            _object_in(folder / MAP),
            _text_in(template_path) if template_path.is_file() else None,
            _object_in(folder / ADDED) or {},
            name,
        )

    @classmethod
    def of_file(cls, file: Path | None) -> Sidecars | None:
        """Read the sidecar files of a file, which only a tokenizer.json has. Raises as `beside`."""
        return cls.beside(file.parent) if file is not None and file.name == "tokenizer.json" else None

    @property
    def known_class(self) -> TokenizerClass | None:
        """The class, if bytemill knows it."""
        return CLASSES.get(self.class_name or "")

    @property
    def adds_prefix_space(self) -> bool:
        """Whether the class puts a space before texts."""
        return self.known_class is not None and bool((self.config or {}).get("add_prefix_space"))

    @property
    def pattern(self) -> str:
        """Name of the pattern for vocab.json and merges.txt: that of the class, or GPT-2's if no file names a class.

        Raises:
            TokenizerFileError: The class is unknown.
        """
        if self.class_name is not None and self.known_class is None:
            raise TokenizerFileError(
                f"{self.folder}: these vocab.json and merges.txt belong to {self.class_name}, whose pattern is unknown",
                hint="use the model's tokenizer.json, which stores it, or give the pattern. Known: "
                + ", ".join(CLASSES),
            )
        return "gpt2" if self.known_class is None else self.known_class.pattern

    @property
    def normalizer(self) -> NormalizerSteps:
        """The normalizer for vocab.json and merges.txt.

        Raises:
            TokenizerFileError: The class would put a space before each part of a text.
        """
        known = self.known_class
        if known is None:
            return ()
        if self.adds_prefix_space and known.pattern != "gpt2":
            raise TokenizerFileError(
                f"{self.folder / CONFIG}: add_prefix_space is true, which is not supported for {self.class_name}",
                hint="set it to false and add the space to the text yourself",
            )
        return (*known.normalizer, *(PREFIX if self.adds_prefix_space else ()))

    def warn_of_other_split(self, pattern: str | None, normalizer: NormalizerSteps) -> None:
        """Warn if the class would split or normalize texts otherwise than a tokenizer.json, which bytemill follows."""
        known = self.known_class
        if known is None or (
            pattern is not None
            and named_pattern(pattern) == known.pattern
            and tuple(step for step in normalizer if step not in PREFIX) == known.normalizer
        ):
            return
        warnings.warn(
            f"{self.folder}: the tokenizer.json splits or normalizes texts otherwise than {self.class_name}, which "
            f"{CONFIG} names: bytemill follows the tokenizer.json, and transformers may give other ids",
            PreTokenizerWarning,
            stacklevel=2,
        )

    def metadata(self, metadata: TokenizerMetadata | None) -> TokenizerMetadata | None:
        """Return metadata of a tokenizer with those of the sidecar files."""
        config = self.config
        if config is None and self.known_class is not None:
            config = {"tokenizer_class": self.class_name}
        if config is None and self.special_tokens_map is None and self.chat_template is None:
            return metadata
        return replace(
            metadata or TokenizerMetadata(),
            config=config,
            special_tokens_map=self.special_tokens_map,
            chat_template=self.chat_template,
        )

    def amended(
        self, document: dict[str, Any], id_of: Callable[[str], int | None], n_entries: int
    ) -> dict[str, Any]:
        """Return a tokenizer.json with the tokens, the flags and the prefix that the sidecar files add.

        Args:
            document: The parsed file.
            id_of: Maps a text to its id in the vocabulary of the model.
            n_entries: Size of that vocabulary.

        Returns:
            `document` itself if nothing changes.

        Raises:
            TokenizerFileError: As `added_tokens` does.
        """
        base = document.get("added_tokens", [])
        added = self.added_tokens(base, id_of, n_entries) if is_array(base) else base
        step = document.get("pre_tokenizer")
        is_prefixed = self.adds_prefix_space and is_object(step) and step.get("add_prefix_space") is False
        if added is base and not is_prefixed:
            return document
        changes = (
            {"pre_tokenizer": step | {"add_prefix_space": True}} if is_prefixed and is_object(step) else {}
        )
        return document | {"added_tokens": added} | changes

    def added_tokens(self, base: list[Any], id_of: Callable[[str], int | None], n_entries: int) -> list[Any]:
        """Return the field `added_tokens` of a tokenizer.json with the tokens and flags that the sidecar files add.

        Args:
            base: The field in the file, or nothing.
            id_of: Maps a text to its id in the vocabulary of the model.
            n_entries: Size of that vocabulary.

        Returns:
            `base` itself if nothing changes.

        Raises:
            TokenizerFileError: A sidecar file is damaged, sets an option that is not supported, or names an id for a
                new token that transformers would not give it.
        """
        if (self.config or {}).get("split_special_tokens"):
            raise TokenizerFileError(
                f"{self.folder / CONFIG}: split_special_tokens is true, which is not supported",
                hint="set it to false, and use encode_ordinary for texts whose special tokens are text",
            )
        tokens: dict[str, dict[str, Any]] = {text: token for token in base if (text := text_of(token))}
        if len(tokens) != len(base):
            return base  # the reader of the file reports what is wrong
        changes = list(self._changes(tokens))
        if not changes:
            return base
        next_id = max([n_entries, *(token["id"] + 1 for token in base if type(token.get("id")) is int)])
        for text, flags, declared in changes:
            if text not in tokens:
                known = id_of(text)
                token_id = next_id if known is None else known
                next_id = max(next_id, token_id + 1)
                if declared not in (None, token_id):
                    raise TokenizerFileError(
                        f"{self.folder}: {shown(text)} has id {declared} in a file beside the vocabulary, but "
                        f"transformers gives it {token_id}",
                        hint="put the token into the vocabulary, with the intended id",
                    )
                tokens[text] = {"id": token_id, "content": text}
            tokens[text] = tokens[text] | asdict(flags)
        return [*tokens.values()]

    def change(self, document: dict[str, Any]) -> bool:
        """Return whether `amended` changes a tokenizer.json, or fails."""
        try:
            return self.amended(document, lambda _: None, 0) is not document
        except TokenizerFileError:
            return True

    def _changes(self, base: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, TokenFlags, int | None]]:
        """Yield tokens that are new or have other flags, in the order in which transformers adds them.

        Each has the id that a file names for it, if any.
        """
        flags_of = {text: _flags_of(token, "added_tokens") for text, token in base.items()}
        names = named_tokens(self.config, self.special_tokens_map, self.class_name)
        named = {text_of(token) for token in names.values()}
        extra = _extra_tokens(self.config or {}, self.special_tokens_map or {})
        for token_id, text, flags in sorted(
            self._with_ids(named | {*map(text_of, extra)}), key=lambda entry: entry[0]
        ):
            if flags_of.get(text) != flags:
                flags_of[text] = replace(flags, special=flags.special or text in named)
                yield text, flags_of[text], token_id
        for token in (*names.values(), *extra):
            if (text := text_of(token)) not in flags_of:
                flags_of[text] = replace(_flags_of(token, str(self.folder)), special=True)
                yield text, flags_of[text], None
        if self.known_class is not None and self.known_class.resets_flags:
            for text in dict.fromkeys(map(text_of, (*names.values(), *extra))):
                if flags_of[text] != TokenFlags():
                    yield text, TokenFlags(), None

    def _with_ids(self, special: Container[str]) -> Iterator[tuple[int, str, TokenFlags]]:
        """Yield the tokens for which a file names ids."""
        config = self.config or {}
        if "added_tokens_decoder" not in config:
            for text, token_id in self.added.items():
                check_id(token_id, f"{self.folder / ADDED}[{shown(text)}]")
                is_special = text in special
                yield token_id, text, TokenFlags(normalized=not is_special, special=is_special)
            return
        location = f"{self.folder / CONFIG}: added_tokens_decoder"
        for key, token in object_at(config["added_tokens_decoder"], location).items():
            if not key.isdecimal() or not is_object(token) or not text_of(token):
                raise TokenizerFileError(f"{location}[{shown(key)}] is not an id with its token")
            flags = {"normalized": not token.get("special", False)} | token
            yield int(key), text_of(token), _flags_of(flags, f"{location}[{shown(key)}]")

    def post_processor(self, ids: Mapping[str, int]) -> TokenizerMetadata | None:
        """Return the post-processor for vocab.json and merges.txt as metadata; None if it adds no tokens."""
        return (
            None if (found := self._post_processor(ids)) is None else TokenizerMetadata(post_processor=found)
        )

    def _post_processor(self, ids: Mapping[str, int]) -> dict[str, Any] | None:
        names = named_tokens(self.config, self.special_tokens_map, self.class_name)
        token_of = {role: text_of(token) for role, token in names.items()}
        config = self.config or {}
        if self.known_class is not None and self.known_class.joins_like_roberta:
            ends = {
                side: [token_of[f"{side}_token"], ids[token_of[f"{side}_token"]]] for side in ("sep", "cls")
            }
            flags = {
                "trim_offsets": bool(config.get("trim_offsets", True)),
                "add_prefix_space": self.adds_prefix_space,
            }
            return {"type": "RobertaProcessing", **ends, **flags}
        before, after = (
            [token_of[role]] if config.get(f"add_{role}") and role in token_of else []
            for role in ("bos_token", "eos_token")
        )
        if not before and not after:
            return None

        def around(sequence: str, type_id: int) -> list[dict[str, Any]]:
            special = [
                [{"SpecialToken": {"id": token, "type_id": type_id}} for token in tokens]
                for tokens in (before, after)
            ]
            return [*special[0], {"Sequence": {"id": sequence, "type_id": type_id}}, *special[1]]

        single = around("A", 0)
        return {
            "type": "TemplateProcessing",
            "single": single,
            "pair": [*single, *around("B", 1)],
            "special_tokens": {
                token: {"id": token, "ids": [ids[token]], "tokens": [token]} for token in (*before, *after)
            },
        }


def named_tokens(
    config: Mapping[str, Any] | None,
    special_tokens_map: Mapping[str, Any] | None,
    class_name: str | None = None,
) -> dict[str, Any]:
    """Return the special tokens by role, each as a text or as an object with its flags.

    Args:
        config: tokenizer_config.json.
        special_tokens_map: special_tokens_map.json, which has precedence unless the other file has all added tokens.
        class_name: Class of the tokenizer; by default `tokenizer_class` of the configuration.
    """
    settings = dict(config or {})
    if "added_tokens_decoder" not in settings:
        settings |= special_tokens_map or {}
    known = CLASSES.get(class_name or _class_name(settings) or "")
    settings = {**(known.names if known else {}), **settings}
    extra = settings.get("extra_special_tokens")
    if is_object(extra):
        settings |= {key: token for key, token in extra.items() if key not in NAMES}
    roles = [*NAMES, *(key for key in settings if key.endswith("_token") and key not in NAMES)]
    if is_object(extra):
        roles += [key for key in extra if key not in roles]
    return {role: settings[role] for role in roles if text_of(settings.get(role))}


def _extra_tokens(config: Mapping[str, Any], special_tokens_map: Mapping[str, Any]) -> list[Any]:
    """Return the special tokens without a role."""
    tokens: list[Any] = []
    found = config.get("extra_special_tokens") or config.get("additional_special_tokens")
    tokens += found if is_array(found) else []
    if "added_tokens_decoder" not in config:
        more = special_tokens_map.get("extra_special_tokens")
        if more is None and not tokens:
            more = special_tokens_map.get("additional_special_tokens")
        tokens += more if is_array(more) else []
    return [token for token in tokens if text_of(token)]


def text_of(token: Any) -> str:
    """Return the text of a token: a str, or an object with its flags; "" for anything else."""
    if is_object(token):
        token = token.get("content")
    return token if isinstance(token, str) else ""


def _flags_of(token: Any, location: str) -> TokenFlags:
    return flags_at(token, location) if is_object(token) else TokenFlags()


def _class_name(config: Mapping[str, Any]) -> str | None:
    name = config.get("tokenizer_class")
    if not isinstance(name, str) or not name:
        return None
    return name if name == "PreTrainedTokenizerFast" else name.removesuffix("Fast")


def _class_of_model(config: Mapping[str, Any]) -> str | None:
    """Return the class that a model's config.json names or implies."""
    if (name := _class_name(config)) is not None or not isinstance(
        model_type := config.get("model_type"), str
    ):
        return name
    known = (name for name, each in CLASSES.items() if model_type in each.model_types)
    return next(known, f"the class for {model_type}")


def _text_in(path: Path) -> str:
    if path.stat().st_size > _MAX_BYTES:
        raise TokenizerFileError(f"{path} is larger than {_MAX_BYTES >> 20} MiB, the limit for sidecar files")
    return read_text(path)


def _object_in(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    value = object_at(parse_json(_text_in(path), str(path)), str(path))
    check_depth(value, str(path))
    return value
