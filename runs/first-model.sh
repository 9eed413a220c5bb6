#!/usr/bin/env bash
# From nothing to a model that answers: tokenizer, shards, pretraining, tuning on answers (SFT), tuning on rewards (GRPO), evaluation, chat.
#
#   runs/first-model.sh [FOLDER]           # on two CPU cores: a model of sums, with 4 minutes of CPU time
#   SCALE=gpu TEXTS='fineweb/*.parquet' CHATS=chats.jsonl PROMPTS=gsm8k-train.jsonl TEST=gsm8k-test.jsonl runs/first-model.sh [FOLDER]
#
# The second form trains GPT-2 (124M) on one GPU: 2.5 billion tokens, 20 for each parameter. At 45 % of an H100's peak that is
# computed to take 1 h 20 min; it has not been run. TEXTS is what to learn from, and the other three are described in docs/guides/tuning.md.
#
# The model of sums answers 77.2 % of the 500 test sums after SFT and 79.4 % after GRPO (17 better, 6 worse, p 0.10), and 12 to "7 + 5".
# That took 3 min 36 s of CPU time, and 22 minutes on cores that many other programs used.
#
# Every step is one command, and a step that is done is left alone: after an interruption, run the script again.
set -euo pipefail

folder=${1:-first-model}
scale=${SCALE:-cpu}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$folder"

if [ "$scale" = cpu ]; then
    # Sums such as "12 + 30", as text, as conversations, as prompts with a right answer, and 500 for the test. No test expression is
    # anywhere else.
    [ -f "$folder/test.jsonl" ] || python "$here/sums.py" "$folder"
    TEXTS=$folder/texts.jsonl CHATS=$folder/chats.jsonl PROMPTS=$folder/prompts.jsonl TEST=$folder/test.jsonl
    vocab_size=275 pattern=qwen2 answer_tokens=6 # digits stand alone, so the model can carry
    model=(--model.context-length 32 --model.d-model 128 --model.num-layers 2 --model.num-heads 4 --model.d-ff 384)
    base=(--training.steps "${BASE_STEPS:-1200}" --training.batch-size 128 --optimizer.learning-rate 3e-3 --data.packing documents)
    sft=(--training.steps "${SFT_STEPS:-60}" --training.batch-size 32 --optimizer.learning-rate 3e-4)
    grpo=(--training.steps "${GRPO_STEPS:-50}" --training.batch-size 1024 --tuning.prompts-per-step 128 --tuning.group-size 8
        --optimizer.learning-rate 1e-4 --schedule.name cosine --schedule.warmup-steps 5)
else
    : "${TEXTS:?set TEXTS to the text to learn from}" "${CHATS:?}" "${PROMPTS:?}" "${TEST:?}"
    vocab_size=32768 pattern=qwen2 answer_tokens=256
    model=(--model.preset gpt2 --model.vocab-size 32768)
    base=(--training.steps 4750 --training.batch-size 64 --training.accumulation 8 --optimizer.learning-rate 6e-4
        --schedule.name cosine --schedule.warmup-steps 715 --training.precision bfloat16 --training.compile)
    sft=(--training.steps 1000 --training.batch-size 32 --optimizer.learning-rate 3e-5)
    grpo=(--training.steps 200 --training.batch-size 256 --tuning.prompts-per-step 32 --tuning.group-size 8
        --optimizer.learning-rate 1e-6)
fi

# 1. A tokenizer of the text, with tokens that begin and end turns and a template that puts them there.
tok=$folder/tokenizer
if [ ! -f "$tok/tokenizer.json" ]; then
    mkdir -p "$tok"
    bytemill tokenizer train "$TEXTS" --vocab-size $vocab_size --pattern $pattern --output "$tok/tokenizer.json" \
        --special-token '<|user|>' --special-token '<|assistant|>' --special-token '<|end|>'
    cp "$here/chat_template.jinja" "$tok"
fi

# 2. Text and conversations as ids. The mask of conversations says which of them the assistant says.
bytemill data encode "$tok" "$TEXTS" --output "$folder/shards" --validation-fraction 0.01
bytemill data encode "$tok" --conversations "$CHATS" --output "$folder/chats"

# 3. Pretraining: the next token of text.
bytemill lm train --run.folder "$folder/base" "${model[@]}" "${base[@]}" \
    --data.tokenizer "$tok" --data.train "$folder/shards"

# 4. Tuning on answers: the next token of what the assistant says.
bytemill lm tune sft "$folder/base" --run.folder "$folder/sft" --data.tokenizer "$tok" --data.train "$folder/chats" "${sft[@]}"

# 5. Tuning on rewards: eight answers to each prompt, and those better than the mean of the eight become likelier.
bytemill lm tune grpo "$folder/sft" --run.folder "$folder/grpo" --data.tokenizer "$tok" --tuning.prompts "$PROMPTS" \
    --tuning.reward number --tuning.max-tokens $answer_tokens "${grpo[@]}"

# 6. Does it answer better? Right answers among those of the test, with intervals, and a paired comparison.
for run in sft grpo; do
    bytemill lm eval "$folder/$run" --task "gsm8k=$TEST" --chat --max-tokens $answer_tokens --results "$folder/$run.jsonl"
done
bytemill lm eval "$folder/grpo" --task "gsm8k=$TEST" --chat --max-tokens $answer_tokens --results "$folder/grpo.jsonl" \
    --against "$folder/sft.jsonl"

# 7. Ask it something.
echo '7 + 5' | bytemill lm chat "$folder/grpo" --max-tokens $answer_tokens
echo "
bytemill lm chat $folder/grpo    # to ask more
bytemill studio $folder          # to see what it saw, said and learned"
