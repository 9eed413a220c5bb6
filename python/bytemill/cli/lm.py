"""`bytemill lm`: train, generate, eval, plan."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, CycloptsError, Parameter
from cyclopts.validators import Number

from bytemill.cli import options, output
from bytemill.cli.interruption import interruptible
from bytemill.cli.lm_config import CONFIG_SOURCES, SettingOptions, resolve_options
from bytemill.errors import RunConfigError
from bytemill.lm.presets import PRESETS
from bytemill.lm.settings import suggestion

app = App(
    name="lm",
    help="Train language models on shards, generate text with them, evaluate them.",
    help_epilogue="bytemill lm COMMAND --help shows options and examples.",
)

Settings = Annotated[SettingOptions, Parameter(name="*")]
_UNSET = SettingOptions()
HiddenSettings = Annotated[SettingOptions, Parameter(name="*", show=False)]
Run = Annotated[Path, Parameter(name="RUN", help="A run folder, or one of its checkpoints.")]
Device = Annotated[str, Parameter(help="One of auto, cpu, cuda, cuda:N, mps.")]


@app.command(
    sort_key=1,
    config=CONFIG_SOURCES,
    help_epilogue="""Examples:
  bytemill lm train --data.tokenizer tokenizer.json --data.train shards --run.folder mine
  bytemill lm train stories.toml --model.num-layers 8 --training.steps 5000
  bytemill lm train stories.toml --print-config > resolved.toml
  bytemill lm train mine                         resume the run in the folder mine

A settings file has the options' names; BYTEMILL_TRAINING_STEPS and so on set them from
the environment:
  [model]
  preset = "tinystories"
  [data]
  tokenizer = "tokenizer.json"
  train = ["shards"]
  validation = ["validation-shards"]""",
)
def train(
    config: Annotated[
        Path | None,
        Parameter(name="CONFIG", help="A TOML file of settings, or the folder of a run to resume."),
    ] = None,
    /,
    *,
    settings: Settings = _UNSET,
    print_config: Annotated[
        bool,
        Parameter(
            name="--print-config",
            show_default=False,
            help="Print every setting with its origin, and do not train.",
        ),
    ] = False,
    overwrite: Annotated[
        bool,
        Parameter(
            name="--overwrite", show_default=False, help="Start over if the folder already holds a run."
        ),
    ] = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train a language model, or resume training.

    Options override environment variables, which override CONFIG, which overrides the
    defaults. The same command resumes an interrupted run from its last checkpoint, on
    the CPU bit for bit as if it had never stopped. Ctrl-C and SIGTERM save first.
    """
    from bytemill.lm.training.config import config_to_toml

    resolved = resolve_options(config, settings)
    if print_config:
        output.write_json(resolved.config.to_dict()) if as_json else output.write(config_to_toml(resolved))
        return
    from bytemill.cli.lm_training import TrainingView
    from bytemill.lm.training.metrics_log import read_metrics
    from bytemill.lm.training.trainer import train

    folder = resolved.config.run.folder
    with (
        interruptible(f"progress is saved in {folder}: run the same command again to resume"),
        TrainingView(quiet=quiet) as view,
    ):
        run = train(resolved, overwrite=overwrite, on_record=view)
    if as_json:
        last: dict[str, Any] = {
            kind: (read_metrics(run.metrics, kind) or [None])[-1] for kind in ("step", "validation", "sample")
        }
        output.write_json({"folder": folder, "checkpoint": str(run.checkpoint_files()[0]), **last})
    elif not quiet:
        output.write_line(f"{folder}: step {resolved.config.training.steps:,}, {run.checkpoint_files()[0]}")


@app.command(
    sort_key=2,
    help_epilogue="""Examples:
  bytemill lm generate mine "Once upon a time" --temperature 0.8
  bytemill lm generate mine "Once" --samples 3 --seed 1 --top-p 0.9
  bytemill lm generate mine "Once upon" --show-probabilities --max-tokens 10
  bytemill lm generate mine                      an interactive prompt (on a terminal)
  echo -n "Once" | bytemill lm generate mine -   the prompt from standard input""",
)
def generate(
    run: Run,
    prompt: Annotated[
        str | None,
        Parameter(name="PROMPT", help="What the text begins with; - takes it from standard input."),
    ] = None,
    /,
    *,
    max_tokens: Annotated[
        int,
        Parameter(name="--max-tokens", validator=Number(gte=1), help="The most tokens of a sample."),
    ] = 256,
    temperature: Annotated[
        float, Parameter(help="Below 1 the likely becomes likelier; 0 takes it always.")
    ] = 1.0,
    top_k: Annotated[int, Parameter(help="Draw from the so many likeliest only; 0: from all.")] = 0,
    top_p: Annotated[float, Parameter(help="Draw from the fewest that together are this likely.")] = 1.0,
    min_p: Annotated[
        float, Parameter(help="Draw from those at least this likely, as a share of the likeliest.")
    ] = 0.0,
    repetition_penalty: Annotated[
        float, Parameter(help="Above 1 makes tokens that are there already less likely.")
    ] = 1.0,
    no_repeat_ngram: Annotated[
        int, Parameter(name="--no-repeat-ngram", help="No sequence of so many tokens comes twice; 0: may.")
    ] = 0,
    stop: Annotated[
        tuple[str, ...],
        Parameter(name="--stop", show_default=False, help="End before this string; give it once for each."),
    ] = (),
    ignore_special: Annotated[
        bool, Parameter(name="--ignore-special", show_default=False, help="Do not end at special tokens.")
    ] = False,
    samples: Annotated[int, Parameter(validator=Number(gte=1), help="How many texts, drawn at once.")] = 1,
    seed: Annotated[int | None, Parameter(help="The same seed gives the same texts.")] = None,
    show_tokens: Annotated[
        bool, Parameter(name="--show-tokens", show_default=False, help="Draw the boundaries of the tokens.")
    ] = False,
    show_probabilities: Annotated[
        bool,
        Parameter(
            name="--show-probabilities",
            show_default=False,
            help="A line a token: id, probability before and after temperature and cut-offs, bytes, alternatives.",
        ),
    ] = False,
    alternatives: Annotated[
        int, Parameter(validator=Number(gte=0), help="How many of the likeliest others are shown.")
    ] = 3,
    no_cache: Annotated[
        bool,
        Parameter(
            name="--no-cache", show_default=False, help="Compute all tokens anew for each: the same, slower."
        ),
    ] = False,
    device: Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Generate text with a trained model.

    Text appears as it comes. Without a prompt there is an interactive one; with an
    empty one ("") the model begins a text.
    """
    from bytemill.cli import lm_generation
    from bytemill.cli.lm_prompt import run_prompt
    from bytemill.cli.texts import text_input
    from bytemill.lm.device import memory_errors
    from bytemill.lm.generation.sampling import SamplingParameters
    from bytemill.lm.generation.text_generation import GenerationOptions
    from bytemill.lm.loading import load_trained

    if show_tokens and show_probabilities:
        raise CycloptsError("give --show-tokens or --show-probabilities, not both")
    sampling = SamplingParameters(
        repetition_penalty=repetition_penalty,
        no_repeat_ngram=no_repeat_ngram,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
    )
    wanted = GenerationOptions(
        max_tokens=max_tokens,
        sampling=sampling,
        stop=stop,
        stop_at_special=not ignore_special,
        n_samples=samples,
        seed=seed,
        use_cache=not no_cache,
    )
    trained = load_trained(run, device)
    for problem in trained.refused:
        output.note(f"passed over: {problem}")
    if prompt == "-":
        prompt = text_input("-", None).read()
    with (
        interruptible("the text above is incomplete"),
        memory_errors("lower --samples or --max-tokens"),
    ):
        if prompt is None and not as_json:
            run_prompt(trained, wanted)
        elif as_json:
            lm_generation.write_samples_json(trained, prompt or "", wanted, alternatives)
        elif show_probabilities:
            lm_generation.write_probabilities(trained, prompt or "", wanted, alternatives)
        elif show_tokens:
            lm_generation.write_tokens(trained, prompt or "", wanted)
        else:
            lm_generation.write_text(trained, prompt or "", wanted)


@app.command(
    name="eval",
    sort_key=3,
    help_epilogue="""Examples:
  bytemill lm eval mine --text novel.txt
  bytemill lm eval mine --shards validation --stride 64 --json
  bytemill lm eval mine --hellaswag hellaswag_val.jsonl --limit 1000 --results scores.jsonl""",
)
def evaluate(
    run: Run,
    /,
    *,
    text: Annotated[
        tuple[str, ...],
        Parameter(name="--text", consume_multiple=True, show_default=False, help="Text files to predict."),
    ] = (),
    shards: Annotated[
        tuple[Path, ...],
        Parameter(
            name="--shards", consume_multiple=True, show_default=False, help="Folders of shards to predict."
        ),
    ] = (),
    hellaswag: Annotated[
        Path | None,
        Parameter(name="--hellaswag", help="HellaSwag's items: JSON lines, or six lines an item."),
    ] = None,
    stride: Annotated[
        int | None,
        Parameter(
            validator=Number(gte=1),
            help="Tokens from window to window: less than the context gives each more to go by, and takes longer.",
        ),
    ] = None,
    limit: Annotated[
        int | None, Parameter(validator=Number(gte=1), help="Only the first so many items of HellaSwag.")
    ] = None,
    results: Annotated[
        Path | None,
        Parameter(name="--results", help="Keep HellaSwag's results here, and go on from what is there."),
    ] = None,
    batch_size: Annotated[int, Parameter(validator=Number(gte=1), help="Windows or items at once.")] = 16,
    device: Device = "auto",
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Evaluate a trained model: loss, perplexity and bits per byte, HellaSwag.

    Bits per byte can be compared between models with different tokenizers. Special
    tokens count in loss and perplexity, and neither as bits nor as bytes.
    """
    from bytemill.cli.lm_views import write_scores
    from bytemill.cli.progress import ProgressDisplay
    from bytemill.lm.device import memory_errors
    from bytemill.lm.evaluate import (
        HellaSwagScore,
        evaluate_hellaswag,
        read_items,
        score_shards,
        score_text_file,
    )
    from bytemill.lm.loading import load_trained

    if not (text or shards or hellaswag):
        raise CycloptsError("give --text, --shards or --hellaswag: what to evaluate with")
    items = None if hellaswag is None else read_items(hellaswag)[:limit]
    trained = load_trained(run, device)
    context = trained.config.model.context_length
    if stride is not None and stride > context:
        raise CycloptsError(f"--stride {stride} is more than the model's context of {context} tokens")
    again = "run it again" if results is None else f"run it again with --results {results} to go on"
    with interruptible(again), memory_errors("lower --batch-size"), ProgressDisplay(quiet=quiet) as display:

        def shown(name: str, unit: str) -> Callable[[int, int], None]:
            def show(done: int, total: int) -> None:
                display.update(name, unit, done, total)

            return show

        how: dict[str, Any] = {"stride": stride, "batch_size": batch_size}
        texts = {
            name: score_text_file(
                trained.model, trained.tokenizer, name, progress=shown(f"predicting {name}", "tokens"), **how
            )
            for name in text
        } | {
            str(folder): score_shards(
                trained.model,
                trained.tokenizer,
                folder,
                progress=shown(f"predicting {folder}", "tokens"),
                **how,
            )
            for folder in shards
        }
        endings: dict[str, HellaSwagScore] = {}
        if items is not None:
            endings[str(hellaswag)] = evaluate_hellaswag(
                trained.model,
                trained.tokenizer,
                items,
                batch_size=batch_size,
                results=results,
                progress=shown("HellaSwag", "items"),
            )
    if not quiet or as_json:
        write_scores(trained, texts, endings, as_json=as_json)


@app.command(
    sort_key=4,
    config=CONFIG_SOURCES,
    help_epilogue="""Examples:
  bytemill lm plan gpt2-xl --memory 80GB --batch-size 4
  bytemill lm plan stories.toml --memory 24GB --device rtx4090 --precision mixed
  bytemill lm plan tiny --model.num-layers 8 --json""",
)
def plan(
    config: Annotated[
        str,
        Parameter(
            name="PRESET|CONFIG", help="A preset (tiny, tinystories, gpt2-124m … gpt2-xl) or a TOML file."
        ),
    ],
    /,
    *,
    settings: HiddenSettings = _UNSET,
    memory: Annotated[
        str | None, Parameter(help="What the device has, say 80GB; the largest batch is found.")
    ] = None,
    batch_size: Annotated[int, Parameter(validator=Number(gte=1), help="Sequences at once.")] = 1,
    optimizer: Annotated[Literal["adamw", "muon", "sgd"], Parameter(help="Whose state is held.")] = "adamw",
    precision: Annotated[
        Literal["float32", "mixed"],
        Parameter(help="Of matrix products; mixed: bfloat16, with weights in float32."),
    ] = "float32",
    device: Annotated[
        str | None,
        Parameter(help="For the days it takes: a100, h100, h200, l4, rtx4090, or FLOPs a second (312e12)."),
    ] = None,
    utilization: Annotated[float, Parameter(help="The share of them that is used.")] = 0.4,
    training_tokens: Annotated[
        int | None, Parameter(validator=Number(gte=1), help="To train on; by default 20 for each parameter.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Plan a model: parameters, memory, FLOPs, the largest batch, days of training.

    Nothing is made or trained. The model's settings can be given as options, as in
    `bytemill lm train` (--model.num-layers 8).
    """
    from bytemill.cli.lm_views import write_plan
    from bytemill.lm.training.plan import plan_for

    if config not in PRESETS and not Path(config).exists():
        raise RunConfigError(f"{config} is neither a preset nor a file", hint=suggestion(config, PRESETS))
    planned = plan_for(
        resolve_options(config, settings, is_plan=True).config.model,
        memory=memory,
        batch_size=batch_size,
        optimizer=optimizer,
        precision=precision,
        device=device,
        utilization=utilization,
        training_tokens=training_tokens,
    )
    write_plan(planned, config, as_json=as_json)
