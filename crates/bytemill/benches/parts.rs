//! The parts of the core by themselves: `cargo bench -p bytemill [-- splitter]`.
//!
//! On generated text, or on the file that `BYTEMILL_BENCH_TEXT` names.

#![allow(missing_docs, reason = "criterion's macros make functions without any")]

mod common;
#[path = "common/published.rs"]
mod published;

use bytemill::bpe;
use bytemill::decode::Decoder;
use bytemill::encode::{Allowed, no_interrupt};
use bytemill::pretokenize::{MAX_ENDS, NAMED, Pattern, Splits};
use bytemill::train::merges::{Ties, learn};
use common::{Chance, KINDS, Kind};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::mem::MaybeUninit;

const TEXT_BYTES: usize = 4_000_000;

fn throughput(n_bytes: usize) -> Throughput {
    Throughput::Bytes(n_bytes as u64)
}

fn n_pretokens(splits: &mut Splits, ends: &mut Vec<usize>) -> usize {
    let mut n_pretokens = 0;
    while splits.fill(ends).unwrap() {
        n_pretokens += ends.len();
    }
    n_pretokens
}

fn splitter(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("splitter");
    let named = NAMED.iter().map(|named| (named.name, Pattern::Named(named)));
    let patterns: Vec<_> = named.chain(published::patterns()).collect();
    for (kind_name, kind) in KINDS {
        let text = common::text(kind, TEXT_BYTES, 1);
        group.throughput(throughput(text.len()));
        for (name, pattern) in &patterns {
            group.bench_function(BenchmarkId::new(*name, kind_name), |bench| {
                let mut ends = Vec::with_capacity(MAX_ENDS);
                bench.iter(|| n_pretokens(&mut pattern.splits(&text), &mut ends));
            });
        }
    }
    group.finish();
}

fn encode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("encode");
    for (kind_name, kind) in KINDS {
        let encoder = common::encoder(&common::text(kind, TEXT_BYTES, 1), "cl100k", 20_000);
        let texts: Vec<String> = (2..10).map(|seed| common::text(kind, TEXT_BYTES, seed)).collect();
        group.throughput(throughput(TEXT_BYTES));
        let mut next = texts.iter().cycle();
        // Eight texts in turn: the tables keep the frequent pre-tokens and have lost the rare ones.
        group.bench_function(BenchmarkId::new("in turn", kind_name), |bench| {
            let mut ids: Vec<u32> = Vec::new();
            bench.iter(|| {
                ids.clear();
                encoder.encode(next.next().unwrap(), Allowed::None, &mut ids, &no_interrupt).unwrap();
                ids.len()
            });
        });
        group.bench_function(BenchmarkId::new("again", kind_name), |bench| {
            let mut ids: Vec<u32> = Vec::new();
            bench.iter(|| {
                ids.clear();
                encoder.encode(&texts[0], Allowed::None, &mut ids, &no_interrupt).unwrap();
                ids.len()
            });
        });
        let short: String = texts[0].chars().take(100).collect();
        group.throughput(throughput(short.len()));
        group.bench_function(BenchmarkId::new("100 characters", kind_name), |bench| {
            bench.iter(|| {
                let mut ids: Vec<u32> = Vec::new();
                encoder.encode(&short, Allowed::None, &mut ids, &no_interrupt).unwrap();
                ids
            });
        });
    }
    group.finish();
}

fn merge(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("merge");
    let encoder = common::encoder(&common::text(Kind::English, TEXT_BYTES, 1), "cl100k", 20_000);
    for n_bytes in [4, 8, 12, 16, 24, 32, 64, 65, 256, 4096, 1 << 16, 1 << 20] {
        let mut chance = Chance::new(3);
        let letters =
            |chance: &mut Chance| -> Vec<u8> { (0..n_bytes).map(|_| b'a' + chance.below(26) as u8).collect() };
        let words: Vec<Vec<u8>> = (0..(1 << 20) / n_bytes.max(64)).map(|_| letters(&mut chance)).collect();
        let mut next = words.iter().cycle();
        group.throughput(throughput(n_bytes));
        group.bench_function(BenchmarkId::new("random letters", n_bytes), |bench| {
            let mut symbols = Vec::new();
            bench.iter(|| {
                symbols.clear();
                bpe::merge(encoder.vocab().pairs(), next.next().unwrap(), &mut symbols, &no_interrupt).unwrap();
                symbols.len()
            });
        });
        if n_bytes >= 64 {
            let run = vec![b'a'; n_bytes];
            group.bench_function(BenchmarkId::new("one letter", n_bytes), |bench| {
                let mut symbols = Vec::new();
                bench.iter(|| {
                    symbols.clear();
                    bpe::merge(encoder.vocab().pairs(), black_box(&run), &mut symbols, &no_interrupt).unwrap();
                    symbols.len()
                });
            });
        }
    }
    group.finish();
}

fn trainer(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("trainer");
    group.sample_size(10);
    for (kind_name, kind) in KINDS {
        let text = common::text(kind, TEXT_BYTES, 1);
        group.throughput(throughput(text.len()));
        group.bench_function(BenchmarkId::new("count", kind_name), |bench| {
            bench.iter(|| common::counted(&text, "gpt2").n_unique());
        });
        let counts = common::counted(&text, "gpt2");
        group.throughput(Throughput::Elements(10_000));
        group.bench_function(BenchmarkId::new("learn 10,000", kind_name), |bench| {
            bench.iter(|| learn(&counts, 10_000, Ties::Bytes, 1, 1, |_| Ok(())).unwrap().len());
        });
    }
    group.finish();
}

fn decode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode");
    for (kind_name, kind) in KINDS {
        let text = common::text(kind, TEXT_BYTES, 1);
        let encoder = common::encoder(&text, "cl100k", 20_000);
        let mut ids: Vec<u32> = Vec::new();
        encoder.encode(&text, Allowed::None, &mut ids, &no_interrupt).unwrap();
        let decoder = Decoder::new(encoder.vocab()).unwrap();
        group.throughput(throughput(text.len()));
        group.bench_function(kind_name, |bench| {
            bench.iter(|| {
                let mut bytes = vec![MaybeUninit::uninit(); decoder.n_bytes(&ids, &no_interrupt).unwrap()];
                decoder.fill(&ids, &mut bytes, &no_interrupt).unwrap();
                bytes
            });
        });
    }
    group.finish();
}

criterion_group!(parts, splitter, encode, merge, trainer, decode);
criterion_main!(parts);
