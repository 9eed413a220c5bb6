#!/bin/sh
# Critical batch size, distillation and pruning of small models. Usage: run.sh TEXT FOLDER, with a text of about 2 MB.
set -eu
text=$1
folder=$2
threads=${THREADS:-1}
mkdir -p "$folder"
size=$(wc -c < "$text")
head -c $((size * 9 / 10)) "$text" > "$folder/train.txt"
tail -c $((size / 10)) "$text" > "$folder/held-out.txt"
cd "$folder"

bm() { bytemill "$@" --quiet; }
bits() { grep '"kind": "validation"' "$1/metrics.jsonl" | tail -n 1 | grep -o '"bits_per_byte": [0-9.]*' | head -n 1 | cut -d' ' -f2; }
train() { # FOLDER OPTIONS…
    name=$1
    shift
    bm "$@" --data.train shards --data.validation held-out --model.context-length 128 --training.batch-size 16 \
        --training.accumulation 1 --run.folder "$name" --run.validate-every 100000 --threads "$threads" > /dev/null
}

[ -d shards ] || {
    bm tokenizer train train.txt --vocab-size 1024 --output tok.json
    bm data encode tok.json train.txt --documents '<|endoftext|>' --output shards
    bm data encode tok.json held-out.txt --documents '<|endoftext|>' --output held-out
}

# 1. The critical batch size while a model learns.
train base lm train --data.tokenizer tok.json --model.depth 1 --training.steps 3200 --run.checkpoint-every 100000 \
    --run.keep-every 100
for step in 100 400 1600; do
    bm lm batch-size "base/checkpoints/step_0000$(printf %04d $step)" --output "batches-$step" \
        --batch-sizes 1 2 4 8 16 32 64 128 --branch-tokens 128k --repetitions 2 --threads "$threads" > "batches-$step.txt"
done

# 2. A student with and without its teacher, five seeds.
train teacher lm train --data.tokenizer tok.json --model.depth 3 --training.steps 1500
echo "teacher $(bits teacher)" > distillation.txt
for seed in 0 1 2 3 4; do
    for weight in 0 0.5 1; do
        name=student-$weight-$seed
        options="--model.depth 1 --training.steps 600 --training.seed $seed --optimizer.learning-rate 0.01"
        if [ "$weight" = 0 ]; then
            train "$name" lm train --data.tokenizer tok.json $options
        else
            train "$name" lm tune distill teacher --model.vocab-size 1024 --tuning.teacher-weight "$weight" $options
        fi
        echo "$weight $seed $(bits "$name")" >> distillation.txt
    done
done

# 3. The teacher pruned, and trained further with its zeros and without, as long as without pruning.
: > pruning.txt
for sparsity in none 0.5 2:4 0.75; do
    source=teacher
    if [ "$sparsity" != none ]; then
        source=pruned-$sparsity
        bm lm prune teacher --output "$source" --sparsity "$sparsity" --overwrite > /dev/null
    fi
    before=$(bytemill lm eval "$source" --text held-out.txt --json --threads "$threads" | grep -o '"bits_per_byte": [0-9.]*' | head -n 1 | cut -d' ' -f2)
    for seed in 0 1 2; do
        name=further-$sparsity-$seed
        train "$name" lm train --init-from "$source" --training.keep-zeros --training.steps 400 --training.seed "$seed" \
            --optimizer.learning-rate 0.001
        echo "$sparsity $before $seed $(bits "$name")" >> pruning.txt
    done
done
