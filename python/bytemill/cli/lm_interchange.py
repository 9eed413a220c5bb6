"""`bytemill lm import` and `bytemill lm export`."""

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import CycloptsError, Parameter
from cyclopts.validators import Number

from bytemill.cli import options, output
from bytemill.storage import is_url, shown

MODEL_HELP = (
    "Run folder, one of its checkpoints, an imported model, a folder of transformers, or a GGUF file."
)
Folder = Annotated[Path, Parameter(name=["--output", "-o"], help="Folder of the result, or its URL.")]


def usable_path(path: str | Path, *, quiet: bool = False) -> Path:
    """Return the folder of a model, which is imported first if it is that of another program."""
    from bytemill.lm.interchange.imported import is_of_another_program, usable_model

    if not is_of_another_program(path):
        return Path(path)
    with output.ProgressDisplay(quiet=quiet) as display:
        folder, imported = usable_model(
            path, progress=lambda done, total: display.update(f"importing {path}", "bytes", done, total)
        )
    if imported is not None:
        output.note(f"imported {imported.folder.source} for this and later commands: {folder}", quiet=quiet)
        for note in imported.notes:
            output.note(note, quiet=quiet)
    return folder


def teacher_settings(model: str) -> dict[str, Any]:
    """Return the settings of a run that learns from a model: the model, its tokenizer and the sizes they share."""
    from bytemill.lm.training.saved_model import find_saved_model

    saved = find_saved_model(usable_path(model))
    values: dict[str, Any] = {
        "tuning.teacher": str(saved.path),
        "model.vocab_size": saved.config.model.vocab_size,
        "model.context_length": saved.config.model.context_length,
    }
    return values if saved.fingerprint is None else {**values, "data.tokenizer": str(saved.tokenizer_path)}


def import_weights(
    source: Annotated[
        Path,
        Parameter(
            name="SOURCE",
            help="Folder of Hugging Face transformers with safetensors files, a GGUF file, or nanoGPT's ckpt.pt.",
        ),
    ],
    /,
    *,
    destination: Folder,
    tokenizer: Annotated[
        str | None, Parameter(help="Tokenizer file or published name; by default the one in SOURCE.")
    ] = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Import a model: GPT-2, Llama, Mistral, Qwen 2, Qwen 3, GGUF files, nanoGPT.

    The result is a folder that `lm generate`, `lm eval` and `lm export` read, and
    that `lm train --init-from` fine-tunes. No code in SOURCE is executed.
    """
    from bytemill.cli.output import ProgressDisplay
    from bytemill.lm.interchange.import_model import import_model
    from bytemill.system.units import format_count

    with ProgressDisplay(quiet=quiet) as display:
        display.step("reading the model")
        imported = import_model(
            source,
            destination,
            tokenizer=tokenizer,
            overwrite=overwrite,
            progress=lambda done, total: display.update("writing", "bytes", done, total),
        )
    for note in imported.notes:
        output.note(note, quiet=quiet)
    folder = imported.folder
    if as_json:
        output.write_json(
            {
                "folder": shown(folder.path),
                "source": folder.source,
                "n_parameters": imported.n_parameters,
                "tokenizer": folder.fingerprint,
                "model": folder.model.to_dict(),
            }
        )
    elif not quiet:
        output.write_line(
            f"imported {format_count(imported.n_parameters)} parameters of {folder.source}: {shown(folder.path)}"
        )


def export_weights(
    model: Annotated[Path, Parameter(name="MODEL", help=MODEL_HELP)],
    /,
    *,
    destination: Annotated[
        Path,
        Parameter(
            name=["--output", "-o"], help="Folder of the result, or a GGUF file (NAME.gguf); or its URL."
        ),
    ],
    output_format: Annotated[
        Literal["huggingface", "gguf"] | None,
        Parameter(
            help="A folder for transformers, or a file for llama.cpp (needs the package gguf). By default gguf if the "
            "output ends with .gguf, else huggingface."
        ),
    ] = None,
    precision: Annotated[
        Literal["float32", "bfloat16", "float16", "q8_0", "q4_0"],
        Parameter(help="Type of the stored weights; q8_0 and q4_0 (8 and 4 bits) for GGUF files."),
    ] = "float32",
    max_shard_bytes: Annotated[
        int, Parameter(validator=Number(gte=1), help="Maximum bytes of weights per file (huggingface).")
    ] = 5_000_000_000,
    no_tokenizer: Annotated[
        bool,
        Parameter(name="--no-tokenizer", negative="", help="Leave the tokenizer out; GGUF files need one."),
    ] = False,
    eos_token: Annotated[
        str | None,
        Parameter(
            help="Only special token that ends a text; by default the separator of the training data, else the "
            "tokenizer's end token, and the token that ends an answer in the chat template."
        ),
    ] = None,
    push: Annotated[
        str | None,
        Parameter(
            help="Upload the folder to this repository on Hugging Face's hub, with a model card: USER/NAME."
        ),
    ] = None,
    private: Annotated[bool, Parameter(negative="", help="Make a new repository private.")] = False,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Export a model to Hugging Face transformers or llama.cpp.

    The other program computes the same logits. If no architecture there has the
    options of the model, the command fails and names them.
    """
    from bytemill.cli.output import ProgressDisplay
    from bytemill.lm.interchange.export_model import export_model

    is_gguf = output_format == "gguf" or (output_format is None and destination.suffix == ".gguf")
    if is_gguf and no_tokenizer:
        raise CycloptsError("a GGUF file needs the tokenizer: leave out --no-tokenizer")
    if push is not None and is_gguf:
        raise CycloptsError("--push uploads a folder for transformers: leave out gguf")
    if push is not None and is_url(destination):
        raise CycloptsError("--push uploads a folder of this machine: name one with --output")
    usable = usable_path(model, quiet=quiet)
    with ProgressDisplay(quiet=quiet) as display:
        display.step("reading the model")
        exported = export_model(
            usable,
            destination,
            format=output_format,
            dtype=precision,
            max_shard_bytes=max_shard_bytes,
            with_tokenizer=not no_tokenizer,
            eos_token=eos_token,
            overwrite=overwrite,
            progress=lambda done, total: display.update("writing", "bytes", done, total),
        )
    for problem in exported.refused:
        output.note(f"skipped a damaged checkpoint: {problem}", quiet=quiet)
    if not exported.has_tokenizer and not no_tokenizer:
        output.note(f"{exported.checkpoint} has no tokenizer, so none was exported", quiet=quiet)
    if exported.has_tokenizer and exported.eos_token is None:
        output.note(
            "the exported model has no end token: other programs generate to their maximum; name one with --eos-token",
            quiet=quiet,
        )
    pushed = None
    if push is not None:
        from bytemill.lm.interchange.export_model import model_card
        from bytemill.system.atomic_files import write_text
        from bytemill.system.hub import CARD_NAME, push_folder

        card = model_card(destination, exported.files, exported.checkpoint, push)
        write_text(destination / CARD_NAME, card)
        pushed = push_folder(destination, push, private=private)
    if as_json:
        uploaded = {} if pushed is None else {"url": pushed.url, "commit": pushed.commit}
        output.write_json(
            {
                "checkpoint": str(exported.checkpoint),
                "architecture": exported.architecture,
                "files": [shown(file) for file in exported.files],
                **uploaded,
            }
        )
    elif not quiet:
        names = ", ".join(shown(file) for file in exported.files)
        output.write_line(f"exported {exported.checkpoint} as {exported.architecture}: {names}")
        if pushed is not None:
            output.write_line(f"uploaded to {pushed.url}")


def prune_weights(
    model: Annotated[str, Parameter(name="MODEL", help=MODEL_HELP)],
    /,
    *,
    destination: Folder,
    sparsity: Annotated[
        str,
        Parameter(
            help="Share of the weights of each matrix that become zero, or N:M, where the N largest of M stay."
        ),
    ] = "0.5",
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Set the smallest weights of a model to zero.

    The matrices of the blocks are pruned; embeddings and the output layer stay. The
    other weights can be trained further with `bytemill lm train --init-from`.
    """
    from bytemill.lm.pruning import Sparsity, prune_saved_model

    wanted = Sparsity.parse(sparsity)
    with output.ProgressDisplay(quiet=quiet) as display:
        folder, n_zeros = prune_saved_model(
            usable_path(model, quiet=quiet),
            destination,
            wanted,
            overwrite=overwrite,
            progress=lambda done, total: display.update("writing", "bytes", done, total),
        )
    if as_json:
        output.write_json({"folder": shown(folder.path), "n_zeros": n_zeros, "source": folder.source})
    else:
        output.write_line(f"{shown(folder.path)}: {n_zeros:,} weights are zero")
