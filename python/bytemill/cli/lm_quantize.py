"""`bytemill lm quantize`."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from bytemill.cli import options, output
from bytemill.cli.lm_interchange import MODEL_HELP, Folder, usable_path
from bytemill.storage import shown


def quantize(
    model: Annotated[Path, Parameter(name="MODEL", help=MODEL_HELP)],
    /,
    *,
    destination: Folder,
    bits: Annotated[Literal[8, 4], Parameter(help="Bits of a weight.")] = 8,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Store the weights of a model in 8 or 4 bits.

    The result is a folder that `lm generate`, `lm eval`, `lm chat`, `lm export`
    and the studio read. It cannot be trained.
    """
    from bytemill.cli.output import ProgressDisplay
    from bytemill.lm.interchange.quantized_folder import quantize_saved_model
    from bytemill.system.units import format_count

    usable = usable_path(model, quiet=quiet)
    with ProgressDisplay(quiet=quiet) as display:
        display.step("quantizing the model")
        quantized = quantize_saved_model(
            usable,
            destination,
            bits,
            overwrite=overwrite,
            progress=lambda done, total: display.update("writing", "bytes", done, total),
        )
    for problem in quantized.refused:
        output.note(f"skipped a damaged checkpoint: {problem}", quiet=quiet)
    before, after = quantized.bytes_before, quantized.bytes_after
    if as_json:
        output.write_json(
            {
                "folder": shown(quantized.folder.path),
                "source": quantized.folder.source,
                "n_parameters": quantized.n_parameters,
                "bits": bits,
                "bytes_before": before,
                "bytes_after": after,
            }
        )
    elif not quiet:
        output.write_line(
            f"quantized {format_count(quantized.n_parameters)} parameters to {bits} bits, {after / before:.3f} of the "
            f"bytes: {shown(quantized.folder.path)}"
        )
