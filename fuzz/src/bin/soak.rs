//! Runs a fuzz target's body on random bytes for a number of seconds, on a stable compiler: `soak TARGET SECONDS [SEED]`.
//!
//! No coverage guides it as it does libFuzzer, but the bodies read nearly all bytes as something sensible. It begins with
//! the inputs in `seeds/TARGET` and `corpus/TARGET`, changes them at random from then on, and draws new ones. An input that
//! fails is kept in `artifacts/TARGET`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 5] = [
    ("pretokenizer", bytemill_fuzz::pretokenizer),
    ("encoder", bytemill_fuzz::encoder),
    ("normalizer", bytemill_fuzz::normalizer),
    ("special_tokens", bytemill_fuzz::special_tokens),
    ("tokenizer_json", bytemill_fuzz::tokenizer_json),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (name, seconds, seed) = match arguments.as_slice() {
        [name, seconds] => (name, seconds, 1),
        [name, seconds, seed] => (name, seconds, seed.parse().expect("SEED is a number")),
        _ => panic!("usage: soak TARGET SECONDS [SEED]"),
    };
    let (_, target) = TARGETS.iter().find(|(known, _)| known == name).expect("an unknown TARGET");
    let limit = Duration::from_secs(seconds.parse().expect("SECONDS is a number"));
    let kept = [inputs("seeds", name), inputs("corpus", name)].concat();
    let (mut random, start, mut n_inputs) = (Random(seed), Instant::now(), 0u64);
    let mut data = Vec::new();
    while start.elapsed() < limit {
        match kept.get(n_inputs as usize) {
            Some(input) => data.clone_from(input),
            None if !kept.is_empty() && random.next().is_multiple_of(2) => {
                let input = &kept[random.next() as usize % kept.len()];
                random.change(input, &mut data);
            }
            None => random.fill(&mut data),
        }
        // What fails prints itself; the seed and the number say how to come there again.
        if let Err(error) = std::panic::catch_unwind(|| target(&data)) {
            eprintln!("seed {seed}, input {n_inputs}: {data:?}");
            keep(name, seed, n_inputs, &data).expect("the input that failed can be written to artifacts/");
            std::panic::resume_unwind(error);
        }
        n_inputs += 1;
    }
    println!("{name}: {n_inputs} inputs in {:.0} s, seed {seed}", start.elapsed().as_secs_f64());
}

fn folder(kind: &str, name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(kind).join(name)
}

/// The files of a folder, in the order of their names; none where there is no folder.
fn inputs(kind: &str, name: &str) -> Vec<Vec<u8>> {
    let Ok(entries) = fs::read_dir(folder(kind, name)) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths.iter().filter_map(|path| fs::read(path).ok()).collect()
}

fn keep(name: &str, seed: u64, n_inputs: u64, data: &[u8]) -> io::Result<()> {
    let folder = folder("artifacts", name);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(format!("soak-{seed}-{n_inputs}")), data)
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// An input with a few bytes changed, left out or said twice.
    fn change(&mut self, input: &[u8], data: &mut Vec<u8>) {
        data.clear();
        data.extend_from_slice(input);
        for _ in 0..1 + self.next() % 4 {
            if data.is_empty() {
                break;
            }
            let start = self.next() as usize % data.len();
            let end = data.len().min(start + self.next() as usize % 8);
            match self.next() % 3 {
                0 => data[start] = self.next() as u8,
                1 => drop(data.drain(start..end)),
                _ => data.extend_from_within(start..end),
            }
        }
    }

    /// Up to some hundred bytes out of a few values, or of all, with stretches that come again.
    fn fill(&mut self, data: &mut Vec<u8>) {
        data.clear();
        let length = (self.next() % (1 << (self.next() % 10))) as usize;
        let palette: Vec<u8> = (0..1 + self.next() % 12).map(|_| self.next() as u8).collect();
        let few = !self.next().is_multiple_of(4);
        data.push(self.next() as u8);
        while data.len() < length {
            let byte = self.next();
            if byte.is_multiple_of(16) && data.len() > 8 {
                let start = (self.next() as usize) % (data.len() - 4);
                data.extend_from_within(start..start + 4);
            } else {
                data.push(if few { palette[(byte >> 8) as usize % palette.len()] } else { (byte >> 8) as u8 });
            }
        }
    }
}
