//! Counting compared to a plain loop with a map.

use crate::encode::no_interrupt;
use crate::error::Error;
use crate::pretokenize::Pattern;
use crate::special::{Segment, SpecialTokens};
use crate::text::utf8::Malformed;
use crate::train::count::{Counter, Counts, Scale, Stay};
use proptest::prelude::*;
use std::collections::HashMap;
use std::io::Read;

pub fn reference_counts(pattern: &Pattern, special: &[String], texts: &[String]) -> HashMap<Vec<u8>, u64> {
    let special = SpecialTokens::new(special.iter().cloned().zip(0..).collect()).unwrap();
    let mut counts = HashMap::new();
    for text in texts {
        special
            .segments(text, true, &no_interrupt, |segment| match segment {
                Segment::Text(text) => pattern.for_each(text, |pretoken| {
                    *counts.entry(pretoken.to_vec()).or_insert(0) += 1;
                }),
                Segment::Special(_) => Ok(()),
            })
            .unwrap();
    }
    counts
}

pub fn as_map(counts: &Counts) -> HashMap<Vec<u8>, u64> {
    let map: HashMap<Vec<u8>, u64> = counts.iter().map(|(pretoken, count)| (pretoken.to_vec(), count)).collect();
    assert_eq!(map.len(), counts.n_unique());
    map
}

pub fn texts() -> impl Strategy<Value = Vec<String>> {
    let piece = prop::sample::select(vec![
        "low",
        " lower",
        " newest",
        "'s",
        " 12",
        "\n",
        "  ",
        "<s>",
        "<s><e>",
        "<",
        "é一",
        "!!",
        " supercalifragilistic",
    ]);
    let text = prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat());
    prop::collection::vec(text, 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn counts_depend_on_neither_threads_nor_chunks(
        texts in texts(),
        chunk_bytes in 1usize..64,
        n_threads in 1usize..4,
        pattern in prop::sample::select(vec![Some("gpt2"), Some("cl100k"), Some("o200k"), Some(r"\S+"), None]),
    ) {
        let pattern = Pattern::new(pattern).unwrap();
        let special = ["<s>".to_owned(), "<s><e>".to_owned()];
        let expected = reference_counts(&pattern, &special, &texts);

        let mut by_text = Counter::new(pattern.clone(), &special, n_threads, chunk_bytes).unwrap();
        let mut by_reader = Counter::new(pattern, &special, n_threads, chunk_bytes).unwrap();
        for text in &texts {
            by_text.add_text(text, &no_interrupt).unwrap();
            // One byte per read, so that chunks end anywhere.
            let reader = OneByte(text.as_bytes());
            by_reader.add_reader(reader, Malformed::Refuse, |_| {}, &no_interrupt).unwrap();
        }
        for counter in [by_text, by_reader] {
            let counts = counter.finish(&no_interrupt).unwrap();
            prop_assert_eq!(&as_map(&counts), &expected);
            prop_assert_eq!(counts.n_pretokens, expected.values().sum::<u64>());
            prop_assert_eq!(counts.n_bytes, texts.iter().map(|text| text.len() as u64).sum::<u64>());
        }
    }
}

struct OneByte<'b>(&'b [u8]);

impl Read for OneByte<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.0.len().min(1);
        buffer[..n].copy_from_slice(&self.0[..n]);
        self.0 = &self.0[n..];
        Ok(n)
    }
}

#[test]
fn growing_tables_keep_all_counts() {
    let items = (0..50_000u32).map(|n| (n.to_string().into_bytes(), u64::from(n) + 1));
    let counts = Counts::from_items(items.clone().chain(items)).unwrap();
    assert_eq!(counts.n_unique(), 50_000);
    assert_eq!(as_map(&counts)[&b"49999"[..]], 100_000);
    let in_order: Vec<u64> = counts.iter().map(|(_, count)| count).collect();
    assert!(in_order.is_sorted_by(|a, b| a >= b));
}

#[test]
fn grown_tables_of_several_threads_add_up() {
    // Short and long pre-tokens, each twice and far apart, so that most are in several tables.
    let words: Vec<String> = (0..20_000).map(|n| format!("{n} {}", "x".repeat(15 + n % 9) + &n.to_string())).collect();
    let text = words.iter().chain(&words).map(String::as_str).collect::<Vec<_>>().join("\n");
    let count = |n_threads| {
        let mut counter = Counter::new(Pattern::new(Some(r"\S+")).unwrap(), &[], n_threads, 1 << 12).unwrap();
        for line in text.lines() {
            counter.add_text(line, &no_interrupt).unwrap();
        }
        counter.finish(&no_interrupt).unwrap()
    };
    let expected = as_map(&count(1));
    assert_eq!(expected[&b"19999"[..]], 2);
    assert_eq!(expected[&b"xxxxxxxxxxxxxxx0"[..]], 2);
    for n_threads in [2, 3, 5] {
        assert_eq!(as_map(&count(n_threads)), expected);
    }
}

#[test]
fn an_interrupt_ends_counting() {
    let mut counter = Counter::new(Pattern::GPT2, &[], 2, 1 << 10).unwrap();
    let text = "some words ".repeat(100_000);
    let error = counter.add_text(&text, &|| Err(Error::Interrupted)).unwrap_err();
    assert!(matches!(error, Error::Interrupted));
}

#[test]
fn malformed_bytes_are_reported_or_replaced() {
    let bytes = b"ok \xFF more \xE4\xB8";
    let count = |malformed| {
        let mut counter = Counter::new(Pattern::GPT2, &[], 1, 1 << 10).unwrap();
        counter.add_reader(&bytes[..], malformed, |_| {}, &no_interrupt)?;
        counter.finish_scaled(Scale::ONE, Stay::Never, &no_interrupt)
    };
    assert!(matches!(count(Malformed::Refuse), Err(Error::Utf8 { start: 3, end: 4, .. })));
    assert_eq!(count(Malformed::Replace).unwrap().1.n_replaced, 2);
}
