//! One part of the core on generated text, for `python -m benchmarks instructions` to run under callgrind.
//!
//! `instructions PART KIND BYTES`, with PART one of split-PATTERN, new, again, count, learn, decode, merge-short,
//! merge-long, nothing. Callgrind counts what happens inside `measured_part` only; `count` works in a thread of its own
//! and is counted as the difference from `nothing`.

#[allow(dead_code, reason = "the benches use more of it")]
#[path = "../benches/common/mod.rs"]
mod common;

use bytemill::bpe;
use bytemill::decode::Decoder;
use bytemill::encode::{Allowed, no_interrupt};
use bytemill::pretokenize::{MAX_ENDS, Pattern};
use bytemill::train::merges::{Ties, learn};
use common::{Chance, KINDS, Kind, counted, encoder, generated};
use std::hint::black_box;
use std::mem::MaybeUninit;

const N_MERGES: usize = 5_000;

/// A function of its own name, whatever the compiler would make of it.
#[inline(never)]
fn measured_part(work: &mut dyn FnMut()) {
    work();
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [part, kind, n_bytes] = arguments.as_slice() else { panic!("usage: instructions PART KIND BYTES") };
    let (_, kind) = KINDS.iter().find(|(name, _)| name == kind).expect("KIND is english, code or multilingual");
    let n_bytes: usize = n_bytes.parse().expect("BYTES is a number");
    run(part, *kind, n_bytes);
}

fn run(part: &str, kind: Kind, n_bytes: usize) {
    let text = generated(kind, n_bytes, 2);
    // What the vocabulary is learned from is another text, so that new text holds what it has not seen.
    let learned = || encoder(&generated(kind, n_bytes, 1), "cl100k", N_MERGES);
    match part {
        "nothing" => {}
        "count" => {
            black_box(counted(&text, "gpt2"));
        }
        "learn" => {
            let counts = counted(&text, "gpt2");
            measured_part(&mut || {
                black_box(learn(&counts, N_MERGES, Ties::Bytes, 1, 1, |_| Ok(())).unwrap());
            });
        }
        "new" | "again" => {
            let encoder = learned();
            let mut ids: Vec<u32> = Vec::with_capacity(text.len());
            let mut encode = || {
                ids.clear();
                encoder.encode(&text, Allowed::None, &mut ids, &no_interrupt).unwrap();
            };
            if part == "again" {
                encode();
            }
            measured_part(&mut encode);
        }
        "decode" => {
            let encoder = learned();
            let mut ids: Vec<u32> = Vec::new();
            encoder.encode(&text, Allowed::None, &mut ids, &no_interrupt).unwrap();
            let decoder = Decoder::new(encoder.vocab()).unwrap();
            let mut bytes = vec![MaybeUninit::uninit(); text.len()];
            measured_part(&mut || {
                assert_eq!(decoder.n_bytes(&ids, &no_interrupt).unwrap(), bytes.len());
                decoder.fill(&ids, &mut bytes, &no_interrupt).unwrap();
            });
            // SAFETY: `fill` has filled all of it, or failed.
            assert!(bytes.iter().map(|byte| unsafe { byte.assume_init() }).eq(text.bytes()));
        }
        "merge-short" | "merge-long" => {
            let encoder = learned();
            let mut chance = Chance::new(5);
            let letters: Vec<u8> = (0..n_bytes).map(|_| b"etaoinshrdlucmfw"[chance.below(16)]).collect();
            let words = letters.chunks(if part == "merge-short" { 10 } else { n_bytes });
            let mut symbols = Vec::with_capacity(n_bytes);
            measured_part(&mut || {
                for word in words.clone() {
                    bpe::merge(encoder.vocab().pairs(), word, &mut symbols, &no_interrupt).unwrap();
                }
            });
        }
        split => {
            let name = split.strip_prefix("split-").expect("an unknown PART");
            let pattern = Pattern::new(Some(name)).unwrap();
            let mut ends = Vec::with_capacity(MAX_ENDS);
            measured_part(&mut || {
                let mut splits = pattern.splits(&text);
                while splits.fill(&mut ends).unwrap() {
                    black_box(&ends);
                }
            });
        }
    }
}
