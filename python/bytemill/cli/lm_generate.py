"""`bytemill lm generate` and `bytemill lm chat`."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import CycloptsError, Group, Parameter
from cyclopts.validators import Number

from bytemill.cli import lm_interchange, options, output
from bytemill.cli.failures import interruptible
from bytemill.cli.lm_evaluate import Device, Kernels, Run, Weights

SAMPLING = Group("Sampling", sort_key=-2)
DISPLAY = Group("Display", sort_key=-1)


def generate(
    run: Run,
    prompt: Annotated[
        str | None, Parameter(name="PROMPT", help="Text to continue; - reads it from standard input.")
    ] = None,
    /,
    *,
    prompts: Annotated[
        Path | None,
        Parameter(
            help="Continue each prompt of a file: JSON lines with the field prompt (.jsonl), or the lines of a text."
        ),
    ] = None,
    batch_size: Annotated[
        int,
        Parameter(
            validator=Number(gte=1),
            help="With --prompts, number of samples that are generated together: when one has ended, the next prompt "
            "takes its place.",
        ),
    ] = 32,
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
    heal: Annotated[
        bool,
        Parameter(
            help="Take back the last token of the prompt, and begin with one that begins with its text, for prompts "
            "that end inside a word or a sign."
        ),
    ] = False,
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
    starts. An empty prompt ("") starts a new document. With --prompts, texts are
    printed in the order of the file, with --json as a line each.
    """
    from bytemill.cli import lm_generation
    from bytemill.cli.lm_prompt import run_prompt
    from bytemill.cli.texts import text_input
    from bytemill.lm.device import memory_errors, use_threads
    from bytemill.lm.generation.sampling import SamplingParameters
    from bytemill.lm.generation.text_generation import GenerationOptions
    from bytemill.lm.prompt_files import read_prompts
    from bytemill.lm.training.saved_model import load_trained

    if show_tokens and show_probabilities:
        raise CycloptsError("give --show-tokens or --show-probabilities, not both")
    if prompts is not None and (
        prompt is not None or show_tokens or show_probabilities or no_cache or draft is not None
    ):
        raise CycloptsError(
            "--prompts takes no PROMPT, --show-tokens, --show-probabilities, --no-cache and no --draft"
        )
    if heal and (prompts is not None or draft is not None):
        raise CycloptsError("--heal takes a PROMPT, and no --draft")
    sampling = SamplingParameters(
        repetition_penalty=repetition_penalty,
        no_repeat_ngram=no_repeat_ngram,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
    )
    use_threads(threads)
    texts = None if prompts is None else read_prompts(prompts)
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
        heal=heal,
    )
    for problem in trained.refused:
        output.note(f"skipped a damaged checkpoint: {problem}")
    if prompt == "-":
        prompt = text_input("-", None).read()
    with interruptible("the text above is incomplete"), memory_errors("lower --samples or --max-tokens"):
        if texts is not None:
            lm_generation.write_continuations(trained, texts, requested, batch_size, as_json=as_json)
        elif prompt is None and not as_json:
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
