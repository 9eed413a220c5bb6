"""`bytemill lm`: train, tune, generate, eval, plan, import, export."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, CycloptsError, Group, Parameter
from cyclopts.validators import Number

from bytemill.cli import lm_adapt, lm_evaluate, lm_interchange, lm_quantize, options, output
from bytemill.cli.app import HELP_ALL
from bytemill.cli.failures import interruptible
from bytemill.cli.lm_config import SettingOptions, TuneOptions, resolve_options
from bytemill.cli.lm_evaluate import Device, Kernels, Run, Weights
from bytemill.errors import RunConfigError
from bytemill.lm.optimizers import OptimizerName
from bytemill.lm.planning import CheckpointingName, Precision
from bytemill.lm.presets import PRESETS
from bytemill.lm.settings import suggestion

if TYPE_CHECKING:
    from bytemill.lm.training.config import Resolved

app = App(
    name="lm",
    help="Train language models on shards, generate text with them, evaluate them.",
    help_epilogue="`bytemill lm COMMAND --help` shows options and examples.",
)

SAMPLING = Group("Sampling", sort_key=-2)
DISPLAY = Group("Display", sort_key=-1)

Settings = Annotated[SettingOptions, Parameter(name="*")]
TuneSettings = Annotated[TuneOptions, Parameter(name="*")]
HiddenSettings = Annotated[SettingOptions, Parameter(name="*", show=False)]
_UNSET = SettingOptions()
_UNSET_TUNING = TuneOptions()


@app.command(
    sort_key=1,
    usage="Usage: bytemill lm train [OPTIONS] [CONFIG]",
    help_flags=("--help", "-h", HELP_ALL),
    help_epilogue="""--help shows the settings that most runs need, --help-all shows all of them.

Examples:
  bytemill lm train --data.tokenizer tokenizer.json --data.train shards \\
    --run.folder mine
  bytemill lm train stories.toml --model.num-layers 8 --training.steps 5000
  bytemill lm train stories.toml --print-config > resolved.toml
  bytemill lm train mine                         resume the run in folder mine
  bytemill lm train stories.toml --devices 8     on 8 GPUs of this machine

A settings file has a table for each group, with the names of the options:
  [data]
  tokenizer = "tokenizer.json"
  train = ["shards"]
  [model]
  preset = "tinystories"
  num_layers = 8
Environment variables have names such as BYTEMILL_TRAINING_STEPS.""",
)
def train(
    config: Annotated[
        Path | None, Parameter(name="CONFIG", help="TOML file with settings, or a run folder to resume.")
    ] = None,
    /,
    *,
    settings: Settings = _UNSET,
    print_config: Annotated[
        bool, Parameter(help="Print every setting with its origin as a TOML file, and exit.")
    ] = False,
    overwrite: Annotated[bool, Parameter(help="Start over if the folder already contains a run.")] = False,
    devices: Annotated[
        int, Parameter(validator=Number(gte=1), help="Number of processes on this machine, one per GPU.")
    ] = 1,
    threads: options.ModelThreads = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train a language model, or resume training.

    Options override environment variables, which override CONFIG, which overrides
    the defaults. Ctrl-C and SIGTERM save a checkpoint. The same command, or
    `bytemill lm train FOLDER`, resumes from the last checkpoint; on the CPU the
    result is identical to that of an uninterrupted run.
    """
    resolved = resolve_options(config, settings)
    if print_config:
        _print_config(resolved, as_json=as_json)
        return
    _run_training(resolved, devices, threads, overwrite=overwrite, as_json=as_json, quiet=quiet)


def _print_config(resolved: "Resolved", *, as_json: bool) -> None:
    from bytemill.lm.training.config import config_to_toml

    output.write_json(resolved.config.to_dict()) if as_json else output.write(config_to_toml(resolved))


def _run_training(
    resolved: "Resolved", devices: int, threads: int | None, *, overwrite: bool, as_json: bool, quiet: bool
) -> None:
    from bytemill.cli.lm_training import TrainingView, resume_hint, write_result
    from bytemill.lm.device import use_threads
    from bytemill.lm.processes import processes_from_environment
    from bytemill.lm.tuning.tune import tune

    use_threads(threads)
    if not processes_from_environment().is_first:
        quiet, as_json = True, False
    with interruptible(lambda: resume_hint(resolved.config.run.folder)), TrainingView(quiet=quiet) as view:
        run = tune(resolved, devices, overwrite=overwrite, on_record=view)
    if as_json or not quiet:
        write_result(run, resolved.config.training.steps, as_json=as_json)


@app.command(
    name="tune",
    sort_key=2,
    usage="Usage: bytemill lm tune METHOD MODEL [OPTIONS]",
    help_flags=("--help", "-h", HELP_ALL),
    help_epilogue="""--help shows the settings that most runs need, --help-all shows all of them.

Examples:
  bytemill lm tune sft base --data.train conversations --run.folder chat
  bytemill lm tune dpo chat --data.train pairs --run.folder preferred
  bytemill lm tune grpo chat --tuning.prompts sums.jsonl --run.folder solver
  bytemill lm tune distill base --model.num-layers 2 --data.train shards \\
    --run.folder small
  bytemill lm train solver                       resume the run in folder solver

Rows for grpo are JSON objects with the fields of --tuning.template, or
`messages`, and `answer`. A reward of your own is a function:
  def reward(prompt, answer, row): return float(answer.strip() == row["answer"])
and is named as --tuning.reward rewards.py:reward""",
)
def tune_model(
    method: Annotated[
        Literal["sft", "dpo", "grpo", "distill"],
        Parameter(
            name="METHOD",
            help="sft: on answers; dpo: on pairs of answers; grpo: on rewards of own answers; distill: a new model, "
            "on the probabilities of MODEL.",
        ),
    ],
    model: Annotated[str, Parameter(name="MODEL", help=lm_interchange.MODEL_HELP)],
    /,
    *,
    settings: TuneSettings = _UNSET_TUNING,
    config: Annotated[
        Path | None, Parameter(help="TOML file with settings, in the form of `lm train`.")
    ] = None,
    print_config: Annotated[
        bool, Parameter(help="Print every setting with its origin as a TOML file, and exit.")
    ] = False,
    overwrite: Annotated[bool, Parameter(help="Start over if the folder already contains a run.")] = False,
    devices: Annotated[
        int, Parameter(validator=Number(gte=1), help="Number of processes on this machine, one per GPU.")
    ] = 1,
    threads: options.ModelThreads = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Tune a model: on answers, on preferences, on rewards, or on another model.

    A tuning run is a run like any other: it has the settings of `lm train`, its
    folder, metrics, checkpoints and exact resume.
    """
    from bytemill.lm.tuning.tune import DEFAULTS

    own = {**DEFAULTS[method], "tuning.method": method}
    own |= lm_interchange.teacher_settings(model) if method == "distill" else {"training.init_from": model}
    resolved = resolve_options(config, settings, defaults=(f"lm tune {method}", own))
    if print_config:
        _print_config(resolved, as_json=as_json)
        return
    _run_training(resolved, devices, threads, overwrite=overwrite, as_json=as_json, quiet=quiet)


@app.command(
    sort_key=3,
    usage="Usage: bytemill lm generate [OPTIONS] RUN [PROMPT]",
    help_epilogue="""Examples:
  bytemill lm generate mine "Once upon a time" --temperature 0.8
  bytemill lm generate mine "Once" --samples 3 --seed 1 --top-p 0.9
  bytemill lm generate mine "Once upon" --show-probabilities --max-tokens 10
  bytemill lm generate mine                      an interactive prompt
  echo -n "Once" | bytemill lm generate mine -   the prompt from standard input
  bytemill lm generate large "Once" --draft small --temperature 0""",
)
def generate(
    run: Run,
    prompt: Annotated[
        str | None, Parameter(name="PROMPT", help="Text to continue; - reads it from standard input.")
    ] = None,
    /,
    *,
    max_tokens: Annotated[int, Parameter(validator=Number(gte=1), help="Maximum tokens per sample.")] = 256,
    samples: Annotated[
        int, Parameter(validator=Number(gte=1), help="Number of samples, generated in one batch.")
    ] = 1,
    seed: Annotated[int | None, Parameter(help="Seed; the same seed gives the same samples.")] = None,
    stop: Annotated[
        tuple[str, ...], Parameter(help="End a sample before this string; may be repeated.")
    ] = (),
    ignore_special: Annotated[bool, Parameter(help="Do not end a sample at a special token.")] = False,
    device: Device = "auto",
    weights: Weights = "auto",
    kernels: Kernels = "auto",
    threads: options.ModelThreads = None,
    no_cache: Annotated[
        bool, Parameter(help="Recompute the whole context for every token: same output, slower.")
    ] = False,
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"],
        Parameter(help="Type of matrix products; auto is bfloat16 on NVIDIA GPUs that have it."),
    ] = "auto",
    draft: Annotated[
        str | None,
        Parameter(
            help="Smaller model with the same tokenizer that guesses tokens, which the model then checks together; or "
            "ngram, which looks in the text so far. Samples have the same distribution."
        ),
    ] = None,
    draft_tokens: Annotated[
        int, Parameter(validator=Number(gte=1), help="Number of tokens that --draft guesses at once.")
    ] = 4,
    temperature: Annotated[
        float,
        Parameter(group=SAMPLING, help="Below 1 favours likely tokens; 0 always takes the most likely one."),
    ] = 1.0,
    top_k: Annotated[
        int, Parameter(group=SAMPLING, help="Sample from the K most likely tokens; 0: from all.")
    ] = 0,
    top_p: Annotated[
        float,
        Parameter(group=SAMPLING, help="Sample from the fewest tokens whose probabilities add up to P."),
    ] = 1.0,
    min_p: Annotated[
        float,
        Parameter(group=SAMPLING, help="Sample from tokens at least P times as likely as the most likely."),
    ] = 0.0,
    repetition_penalty: Annotated[
        float, Parameter(group=SAMPLING, help="Above 1 makes tokens that already occur less likely.")
    ] = 1.0,
    no_repeat_ngram: Annotated[
        int, Parameter(group=SAMPLING, help="Never repeat a sequence of N tokens; 0: allow.")
    ] = 0,
    show_tokens: Annotated[bool, Parameter(group=DISPLAY, help="Mark token boundaries.")] = False,
    show_probabilities: Annotated[
        bool,
        Parameter(
            group=DISPLAY,
            help="Print a line per token: id, probability before and after the sampling options, bytes, alternatives.",
        ),
    ] = False,
    alternatives: Annotated[
        int,
        Parameter(
            group=DISPLAY, validator=Number(gte=0), help="Number of most likely tokens to list per token."
        ),
    ] = 3,
    as_json: options.Json = False,
) -> None:
    """Generate text with a trained model.

    Text is printed as it is generated. Without a prompt, an interactive prompt
    starts. An empty prompt ("") starts a new document.
    """
    from bytemill.cli import lm_generation
    from bytemill.cli.lm_prompt import run_prompt
    from bytemill.cli.texts import text_input
    from bytemill.lm.device import memory_errors, use_threads
    from bytemill.lm.generation.sampling import SamplingParameters
    from bytemill.lm.generation.text_generation import GenerationOptions
    from bytemill.lm.training.saved_model import load_trained

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
    use_threads(threads)
    trained = load_trained(lm_interchange.usable_path(run), device, weights, kernels)
    speculation = None
    if draft is not None:
        speculation = lm_generation.open_draft(draft, draft_tokens, trained, device, kernels)
    requested = GenerationOptions(
        max_tokens=max_tokens,
        sampling=sampling,
        stop=stop,
        stop_at_special=not ignore_special,
        n_samples=samples,
        seed=seed,
        use_cache=not no_cache,
        precision=precision,
        with_logits=show_probabilities or as_json,
        speculation=speculation,
    )
    for problem in trained.refused:
        output.note(f"skipped a damaged checkpoint: {problem}")
    if prompt == "-":
        prompt = text_input("-", None).read()
    with interruptible("the text above is incomplete"), memory_errors("lower --samples or --max-tokens"):
        if prompt is None and not as_json:
            run_prompt(trained, requested)
        elif as_json:
            lm_generation.write_samples_json(trained, prompt or "", requested, alternatives)
        elif show_probabilities:
            lm_generation.write_probabilities(trained, prompt or "", requested, alternatives)
        elif show_tokens:
            lm_generation.write_tokens(trained, prompt or "", requested)
        else:
            lm_generation.write_text(trained, prompt or "", requested)
    if speculation is not None and speculation.n_passes:
        output.note(
            f"kept {speculation.n_kept:,} of {speculation.n_guessed:,} guesses; "
            f"{1 + speculation.n_kept / speculation.n_passes:.2f} tokens per pass of the model"
        )


@app.command(
    sort_key=4,
    usage="Usage: bytemill lm chat RUN [OPTIONS]",
    help_epilogue="""Examples:
  bytemill lm chat solver
  bytemill lm chat solver --system "Answer with a number." --temperature 0
  printf '1+1=\\n' | bytemill lm chat solver""",
)
def chat(
    run: Run,
    /,
    *,
    system: Annotated[str | None, Parameter(help="System prompt, before the first message.")] = None,
    max_tokens: Annotated[int, Parameter(validator=Number(gte=1), help="Maximum tokens per answer.")] = 256,
    seed: Annotated[int | None, Parameter(help="Seed; the same seed gives the same answers.")] = None,
    device: Device = "auto",
    weights: Weights = "auto",
    threads: options.ModelThreads = None,
    temperature: Annotated[
        float,
        Parameter(group=SAMPLING, help="Below 1 favours likely tokens; 0 always takes the most likely one."),
    ] = 0.7,
    top_p: Annotated[
        float,
        Parameter(group=SAMPLING, help="Sample from the fewest tokens whose probabilities add up to P."),
    ] = 0.95,
) -> None:
    """Chat with a model that was tuned on conversations.

    Messages are lines of standard input, in the chat template of the model's
    tokenizer; answers are printed as they are generated. The oldest turns are
    forgotten when the context is full. /help lists commands.
    """
    from bytemill.cli.lm_prompt import Chat, run_prompt
    from bytemill.lm.device import memory_errors, use_threads
    from bytemill.lm.generation.chat import require_chat_template
    from bytemill.lm.generation.sampling import SamplingParameters
    from bytemill.lm.generation.text_generation import GenerationOptions
    from bytemill.lm.training.saved_model import load_trained

    requested = GenerationOptions(
        max_tokens=max_tokens,
        sampling=SamplingParameters(temperature=temperature, top_p=top_p),
        seed=seed,
        with_logits=False,
    )
    use_threads(threads)
    with memory_errors("use a smaller model"):
        trained = load_trained(lm_interchange.usable_path(run), device, weights, "auto")
        require_chat_template(trained.tokenizer, str(run))
        run_prompt(trained, requested, Chat(trained, system))


app.command(
    lm_evaluate.evaluate,
    name="eval",
    sort_key=5,
    help_epilogue="""Examples:
  bytemill lm eval mine --text novel.txt
  bytemill lm eval mine --shards validation --stride 64 --json
  bytemill lm eval mine --hellaswag items.jsonl --limit 1000
  bytemill lm eval mine --task mmlu=mmlu --shots 5 --results scores.jsonl
  bytemill lm eval chat --task gsm8k=test.jsonl --chat --max-tokens 200
  bytemill lm eval mine --task arc=ARC-Easy-Test.jsonl --against other""",
)


@app.command(
    sort_key=6,
    usage="Usage: bytemill lm plan [OPTIONS] [PRESET|CONFIG]",
    help_epilogue="""Examples:
  bytemill lm plan gpt2-xl --memory 80GB --batch-size 4
  bytemill lm plan stories.toml --memory 24GB --device rtx4090 \\
    --precision bfloat16
  bytemill lm plan tiny --model.num-layers 8 --json
  bytemill lm plan --depth 12 --model.vocab-size 32768""",
)
def plan(
    config: Annotated[
        str | None,
        Parameter(
            name="PRESET|CONFIG",
            help=f"A preset ({', '.join(PRESETS)}), a TOML file, a run folder or a model.",
        ),
    ] = None,
    /,
    *,
    settings: HiddenSettings = _UNSET,
    memory: Annotated[
        str | None, Parameter(help="Memory of the device, such as 80GB; also prints the largest batch.")
    ] = None,
    depth: Annotated[
        int | None,
        Parameter(
            validator=Number(gte=1),
            help="Number of blocks from which the sizes follow, and the run's learning rate, batch and tokens; as "
            "--model.depth in `bytemill lm train`.",
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        Parameter(
            validator=Number(gte=1), help="Sequences per batch; by default 1, or the run's with --depth."
        ),
    ] = None,
    optimizer: Annotated[OptimizerName, Parameter(help="Optimizer whose state is counted.")] = "adamw",
    precision: Annotated[
        Precision,
        Parameter(help="Precision of matrix products; weights are float32."),
    ] = "float32",
    activation_checkpointing: Annotated[
        CheckpointingName,
        Parameter(help="What the backward pass computes again instead of reading it from memory."),
    ] = "none",
    device: Annotated[
        str | None,
        Parameter(
            help="Device for the training time, such as a100, h100, h200, b200, l40s or rtx4090, or its FLOPs per "
            "second (312e12)."
        ),
    ] = None,
    utilization: Annotated[float, Parameter(help="Share of the device's FLOPs that training reaches.")] = 0.4,
    training_tokens: Annotated[
        int | None,
        Parameter(
            validator=Number(gte=1),
            converter=options.count,
            help="Training tokens, such as 10B; by default 20 per parameter.",
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Plan a model: parameters, memory, FLOPs, the largest batch, days of training.

    No model is built. Options such as --model.num-layers 8 change its settings, as
    in `bytemill lm train`.
    """
    from bytemill.cli.lm_views import write_plan
    from bytemill.lm.planning import plan_for

    if config is None and depth is None:
        raise RunConfigError(
            "there is nothing to plan", hint="name a preset, a TOML file or a run folder, or add --depth D"
        )
    if config is not None and config not in PRESETS and not Path(config).exists():
        raise RunConfigError(f"{config} is neither a preset nor a file", hint=suggestion(config, PRESETS))
    layer = None if depth is None else ("--depth", {"model.depth": depth})
    resolved = resolve_options(config, settings, is_plan=True, defaults=layer).config
    run = resolved.training
    if depth is not None:
        batch_size = run.batch_size if batch_size is None else batch_size
        per_step = run.batch_size * run.accumulation * resolved.model.context_length
        training_tokens = training_tokens or run.steps * per_step
    planned = plan_for(
        resolved.model,
        memory=memory,
        batch_size=batch_size or 1,
        optimizer=optimizer,
        precision=precision,
        average=resolved.optimizer.ema_decay > 0,
        checkpointing=activation_checkpointing,
        device=device,
        utilization=utilization,
        training_tokens=training_tokens,
    )
    write_plan(planned, config or f"depth {depth}", resolved if depth is not None else None, as_json=as_json)


@app.command(
    sort_key=7,
    usage="Usage: bytemill lm profile [OPTIONS] [CONFIG]",
    help_flags=("--help", "-h", HELP_ALL),
    help_epilogue="""Examples:
  bytemill lm profile mine               the step of the run in folder mine
  bytemill lm profile stories.toml --trace step.json
  bytemill lm profile mine --training.strategy bucketed --devices 2

A trace opens in https://ui.perfetto.dev or in chrome://tracing.""",
)
def profile(
    config: Annotated[
        Path | None, Parameter(name="CONFIG", help="TOML file with settings, or a run folder.")
    ] = None,
    /,
    *,
    settings: Settings = _UNSET,
    steps: Annotated[int, Parameter(validator=Number(gte=1), help="Measured steps.")] = 5,
    warmup: Annotated[
        int, Parameter(validator=Number(gte=1), help="Steps before them, which compile and allocate.")
    ] = 3,
    trace: Annotated[
        Path | None, Parameter(help="Write the events of the measured steps to this file, as a Chrome trace.")
    ] = None,
    devices: Annotated[
        int, Parameter(validator=Number(gte=1), help="Number of processes on this machine, one per GPU.")
    ] = 1,
    threads: options.ModelThreads = None,
    as_json: options.Json = False,
) -> None:
    """Measure a training step: time, communication, memory and FLOPs by part.

    The steps are those of `bytemill lm train` with the same settings, on new
    weights. The folder of the run is not changed.
    """
    from bytemill.cli.lm_views import write_step_profile
    from bytemill.lm.device import use_threads
    from bytemill.lm.training.launch import profile_on_devices

    use_threads(threads)
    measured = profile_on_devices(
        resolve_options(config, settings), devices, n_steps=steps, n_warmup=warmup, trace=trace
    )
    if measured is not None:
        write_step_profile(measured, as_json=as_json)


@app.command(
    name="batch-size",
    sort_key=7,
    help_epilogue="""Examples:
  bytemill lm batch-size mine -o mine-batches
  bytemill lm batch-size mine -o mine-batches --batch-sizes 8 16 32 64 128 \\
    --branch-tokens 2M --repetitions 5""",
)
def batch_size(
    run: Annotated[
        Path, Parameter(name="RUN", help="Folder of a run with validation data, or one of its checkpoints.")
    ],
    /,
    *,
    output_folder: Annotated[
        Path, Parameter(name=("--output", "-o"), help="Folder for the branches and the result.")
    ],
    batch_sizes: Annotated[
        tuple[int, ...],
        Parameter(
            consume_multiple=True,
            help="Sequences per step, at least four numbers; by default those of the run times 1/4, 1/2, 1, 2, 4, 8.",
        ),
    ] = (),
    branch_tokens: Annotated[
        int | None,
        Parameter(
            validator=Number(gte=1),
            converter=options.count,
            help="Tokens of each branch; by default a tenth of those that the run has seen.",
        ),
    ] = None,
    repetitions: Annotated[
        int, Parameter(validator=Number(gte=1), help="Branches of each size, on different data.")
    ] = 3,
    threads: options.ModelThreads = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Find the critical batch size of a run at its last checkpoint, or at another.

    Branches of the run learn from the same number of tokens in steps of different
    size. Up to the critical size larger batches learn about as much. Ctrl-C stops;
    the same command resumes.
    """
    from bytemill.cli.lm_views import write_batch_sizes
    from bytemill.lm.batch_size import measure_batch_size
    from bytemill.lm.device import use_threads

    use_threads(threads)
    with (
        interruptible("run the same command again to resume"),
        output.progress_of_long_work("training branches", "branches", quiet=quiet) as progress,
    ):
        measured = measure_batch_size(
            run,
            output_folder,
            batch_sizes=batch_sizes,
            tokens=branch_tokens,
            repetitions=repetitions,
            on_branch=progress,
        )
    write_batch_sizes(measured, as_json=as_json)


app.command(
    lm_interchange.import_weights,
    name="import",
    sort_key=7,
    help_epilogue="""Examples:
  bytemill lm import SmolLM2-135M -o smollm
  bytemill lm import SmolLM2-135M-Instruct.Q4_1.gguf -o smollm-chat
  bytemill lm import out/ckpt.pt -o mine --tokenizer gpt2""",
)
app.command(
    lm_interchange.export_weights,
    name="export",
    sort_key=8,
    help_epilogue="""Examples:
  bytemill lm export mine -o mine-hf
  bytemill lm export mine -o mine.gguf --output-format gguf --precision float16""",
)
app.command(
    lm_interchange.prune_weights,
    name="prune",
    sort_key=8,
    help_epilogue="""Examples:
  bytemill lm prune mine -o sparse --sparsity 0.5
  bytemill lm prune mine -o sparse --sparsity 2:4
  bytemill lm train --init-from sparse --training.keep-zeros \\
    --data.train shards --run.folder sparse-trained""",
)
app.command(
    lm_adapt.adapt,
    sort_key=8,
    help_epilogue="""Examples:
  bytemill lm adapt runs/mine --tokenizer extended.json -o mine-extended
  bytemill lm adapt gpt2 --tokenizer small.json -o small --text held-out.txt
  bytemill lm train --init-from mine-extended --data.train shards""",
)
app.command(
    lm_quantize.quantize,
    name="quantize",
    sort_key=9,
    help_epilogue="""Examples:
  bytemill lm quantize mine -o mine-int8
  bytemill lm quantize mine -o mine-int4 --bits 4 --scales least-squares""",
)
