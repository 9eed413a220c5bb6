#!/bin/sh
# Make the archives, curate them by each recipe, and train the models of both studies: run.sh FOLDER
set -eu
own=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cp "$own"/recipes/*.toml "$own"/study.toml "$own"/longer.toml "$1"
cd "$1"
python "$own/archives.py" archives --pages 800
bytemill data classifier train archives/good.jsonl archives/spam.jsonl -o archives/quality.safetensors --overwrite
for recipe in raw main language rules classifier lines near all; do
    bytemill data curate "$recipe.toml" archives/crawl-*.warc.gz -o "texts/$recipe" --jobs 2
done
bytemill data report texts/all
bytemill experiment run study.toml -o study --jobs 2
bytemill experiment run longer.toml -o longer --jobs 2
