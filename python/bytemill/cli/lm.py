"""`bytemill lm`: train, tune, generate, eval, plan, import, export."""

from cyclopts import App

from bytemill.cli import lm_adapt, lm_evaluate, lm_generate, lm_interchange, lm_plan, lm_quantize, lm_train
from bytemill.cli.app import HELP_ALL

app = App(
    name="lm",
    help="Train language models on shards, generate text with them, evaluate them.",
    help_epilogue="`bytemill lm COMMAND --help` shows options and examples.",
)

app.command(
    lm_train.train,
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
app.command(
    lm_train.tune_model,
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
app.command(
    lm_generate.generate,
    sort_key=3,
    usage="Usage: bytemill lm generate [OPTIONS] RUN [PROMPT]",
    help_epilogue="""Examples:
  bytemill lm generate mine "Once upon a time" --temperature 0.8
  bytemill lm generate mine "Once" --samples 3 --seed 1 --top-p 0.9
  bytemill lm generate mine "Once upon" --show-probabilities --max-tokens 10
  bytemill lm generate mine                      an interactive prompt
  echo -n "Once" | bytemill lm generate mine -   the prompt from standard input
  bytemill lm generate large "Once" --draft small --temperature 0
  bytemill lm generate mine --prompts prompts.txt --json > texts.jsonl""",
)
app.command(
    lm_generate.chat,
    sort_key=4,
    usage="Usage: bytemill lm chat RUN [OPTIONS]",
    help_epilogue="""Examples:
  bytemill lm chat solver
  bytemill lm chat solver --system "Answer with a number." --temperature 0
  printf '1+1=\\n' | bytemill lm chat solver""",
)
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
app.command(
    lm_plan.plan,
    sort_key=6,
    usage="Usage: bytemill lm plan [OPTIONS] [PRESET|CONFIG]",
    help_epilogue="""Examples:
  bytemill lm plan gpt2-xl --memory 80GB --batch-size 4
  bytemill lm plan stories.toml --memory 24GB --device rtx4090 \\
    --precision bfloat16
  bytemill lm plan tiny --model.num-layers 8 --json
  bytemill lm plan llama-1b --memory 24GB --strategy fully_sharded --devices 8
  bytemill lm plan --depth 12 --model.vocab-size 32768""",
)
app.command(
    lm_plan.profile,
    sort_key=7,
    usage="Usage: bytemill lm profile [OPTIONS] [CONFIG]",
    help_flags=("--help", "-h", HELP_ALL),
    help_epilogue="""Examples:
  bytemill lm profile mine               the step of the run in folder mine
  bytemill lm profile stories.toml --trace step.json
  bytemill lm profile mine --training.strategy bucketed --devices 2

A trace opens in https://ui.perfetto.dev or in chrome://tracing.""",
)
app.command(
    lm_plan.batch_size,
    name="batch-size",
    sort_key=7,
    help_epilogue="""Examples:
  bytemill lm batch-size mine -o mine-batches
  bytemill lm batch-size mine -o mine-batches --batch-sizes 8 16 32 64 128 \\
    --branch-tokens 2M --repetitions 5""",
)
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
  bytemill lm quantize mine -o mine-int4 --bits 4""",
)
