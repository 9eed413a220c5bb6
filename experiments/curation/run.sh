#!/bin/sh
# Make the archives, curate them by each recipe, and train the models of the study: run.sh FOLDER
set -eu
own=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" && cd "$1"
python "$own/archives.py" archives --pages 800
bytemill data classifier train archives/good.jsonl archives/spam.jsonl -o archives/quality.safetensors --overwrite
for recipe in raw main language rules classifier lines near all; do
    bytemill data curate "$own/recipes/$recipe.toml" archives/crawl-*.warc.gz -o "texts/$recipe" --jobs 2
done
bytemill data report texts/all
cp "$own/study.toml" .
bytemill experiment run study.toml -o study --jobs 2
