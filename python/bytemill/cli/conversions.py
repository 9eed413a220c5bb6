"""Print the result of `bytemill tokenizer convert`."""

import shlex

from bytemill.cli import output
from bytemill.formats.registry import FORMATS
from bytemill.storage import is_url, shown
from bytemill.system.units import plural
from bytemill.tokenizer.conversion import Conversion

_PROOFS = {
    "fingerprint": "yes: the new file has the same fingerprint",
    "ids": "yes: the new file gives the same ids for a sample text, every token and every special token",
    "none": "no: a listing cannot be read back",
}


def write_conversion(conversion: Conversion, *, as_json: bool, quiet: bool) -> None:
    """Print the files, what the format omits, and how to open them."""
    if as_json:
        output.write_json(conversion.to_dict())
        return
    for warning in conversion.warnings:
        output.note(warning, quiet=quiet)
    if quiet:
        return
    title = FORMATS[conversion.written_format].title
    first, *others = conversion.files
    n_tokens = len(conversion.tokenizer.vocab)
    output.write_line(f"{output.styled(shown(first), '1')}: {title}, {plural(n_tokens, 'token')}")
    output.write_line()
    more_files = [("second file", shown(file)) for file in others]
    output.write_fields(
        [
            ("from", shown(conversion.source)),
            *more_files,
            ("same tokenizer", _PROOFS[conversion.proof]),
            ("fingerprint", conversion.tokenizer.fingerprint),
            ("left out", "; ".join(conversion.left_out) or "nothing"),
        ]
    )
    if lines := _how_to_open(conversion):
        output.write("\nOpen it:\n" + "".join(f"  {line}\n" for line in lines))


def _how_to_open(conversion: Conversion) -> list[str]:
    """Return a bytemill command, and the Python code that opens the files with the library of their format."""
    first = shlex.quote(shown(conversion.files[0]))
    command = f"bytemill tokenizer show {first}"
    names = [repr(str(file)) for file in conversion.files]
    if conversion.written_format != "vocab" and is_url(conversion.files[0]):
        return [command]  # the other libraries read no URLs
    match conversion.written_format:
        case "vocab":
            return [] if is_url(conversion.files[0]) else [f"less {first}"]
        case "huggingface":
            return [command, f"import tokenizers; tok = tokenizers.Tokenizer.from_file({names[0]})"]
        case "gpt2":
            return [command, f"import transformers; tok = transformers.GPT2TokenizerFast({', '.join(names)})"]
        case "minbpe":
            # minbpe does not compile the pattern that it reads.
            has_pattern = conversion.tokenizer.pattern is not None
            pattern = f"open({names[0]}).readlines()[1].strip()"
            kind = f"RegexTokenizer({pattern})" if has_pattern else "BasicTokenizer()"
            return [command, f"import minbpe; tok = minbpe.{kind}; tok.load({names[0]})"]
        case "tiktoken" if len(names) == 2:
            ranks = f"tiktoken.load.load_tiktoken_bpe({names[0]})"
            encoding = f"tiktoken.Encoding(**json.load(open({names[1]})), mergeable_ranks={ranks})"
            return [command, f"import json, tiktoken.load; tok = {encoding}"]
        case _:
            return [command]
