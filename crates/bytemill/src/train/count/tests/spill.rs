//! Counting with runs on disk, with weights and with checkpoints compared to counting in one table.

use super::counter::{as_map, reference_counts, texts};
use crate::error::Error;
use crate::pretokenize::Pattern;
use crate::sys::interrupt::no_interrupt;
use crate::text::utf8::Malformed;
use crate::train::count::pretoken_counts::PretokenCounts;
use crate::train::count::{
    Counted, Counter, N_PARTITIONS, Scale, SpillCost, Stay, read_counts, read_header, visit_file, visit_range,
    write_counts, write_partitions,
};
use proptest::prelude::*;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A temporary folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("bytemill-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn is_empty(&self) -> bool {
        std::fs::read_dir(&self.0).unwrap().next().is_none()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn map_of(counted: &Counted) -> HashMap<Vec<u8>, u64> {
    match counted {
        Counted::Memory(counts) => as_map(counts),
        Counted::Disk(merged) => {
            let mut map = HashMap::new();
            let add = &mut |pretoken: &[u8], count| {
                assert!(map.insert(pretoken.to_vec(), count).is_none());
                Ok(())
            };
            merged.visit(&no_interrupt, add).unwrap();
            assert_eq!(map.len() as u64, merged.n_unique());
            assert_eq!(map.keys().map(|pretoken| pretoken.len() as u64).sum::<u64>(), merged.n_unique_bytes());
            assert_eq!(map.values().sum::<u64>(), merged.n_pretokens());
            map
        }
    }
}

fn file_bytes(counted: &Counted, folder: &Folder) -> Vec<u8> {
    let path = folder.join("counts.bin");
    write_counts(counted, "{}", &path, &no_interrupt).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    bytes
}

fn special() -> [String; 2] {
    ["<s>".to_owned(), "<s><e>".to_owned()]
}

/// Many different short and long pre-tokens.
fn many_pretokens(n: usize) -> String {
    (0..n).map(|n| format!("{} {}", n * 7919, "x".repeat(16 + n % 300) + &n.to_string())).collect::<Vec<_>>().join(" ")
}

fn stay(may_stay: bool) -> Stay {
    if may_stay { Stay::IfLarge } else { Stay::Never }
}

fn counted(text: &str, n_threads: usize, table_bytes: usize, folder: &Folder, may_stay: bool) -> (Counted, SpillCost) {
    let mut counter = Counter::with_table_limit(Pattern::GPT2, &special(), n_threads, 1 << 12, table_bytes).unwrap();
    counter.set_folder(folder.0.clone());
    counter.add_text(text, &no_interrupt).unwrap();
    counter.add_text(text, &no_interrupt).unwrap();
    let (counted, totals) = counter.finish_scaled(Scale::ONE, stay(may_stay), &no_interrupt).unwrap();
    (counted, totals.spilled)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn merged_runs_equal_counts_in_memory(
        texts in texts(),
        chunk_bytes in 1usize..64,
        n_threads in 1usize..4,
        may_stay in any::<bool>(),
        checkpoints in prop::collection::vec(any::<bool>(), 4),
    ) {
        let folder = Folder::new();
        let expected = reference_counts(&Pattern::GPT2, &special(), &texts);
        // With a limit of 0 bytes, a table is written whenever it is checked.
        let mut counter = Counter::with_table_limit(Pattern::GPT2, &special(), n_threads, chunk_bytes, 0).unwrap();
        counter.set_folder(folder.0.clone());
        for (text, checkpoint) in texts.iter().zip(checkpoints) {
            counter.add_text(text, &no_interrupt).unwrap();
            if checkpoint {
                let state = counter.checkpoint(&no_interrupt).unwrap();
                // Text after the checkpoint is lost with the process.
                counter.add_text("lost low lost", &no_interrupt).unwrap();
                drop(counter);
                counter = Counter::with_table_limit(Pattern::GPT2, &special(), n_threads, chunk_bytes, 0).unwrap();
                counter.resume(&state, &folder.0, &no_interrupt).unwrap();
            }
        }
        let (found, totals) = counter.finish_scaled(Scale::ONE, stay(may_stay), &no_interrupt).unwrap();
        prop_assert_eq!(&map_of(&found), &expected);
        prop_assert_eq!(totals.n_pretokens, expected.values().sum::<u64>());
        prop_assert_eq!(totals.n_bytes, texts.iter().map(|text| text.len() as u64).sum::<u64>());

        // The file does not depend on where the counts are.
        let mut counter = Counter::new(Pattern::GPT2, &special(), 1, 1 << 10).unwrap();
        for text in &texts {
            counter.add_text(text, &no_interrupt).unwrap();
        }
        let plain = Counted::Memory(counter.finish(&no_interrupt).unwrap());
        prop_assert_eq!(file_bytes(&found, &folder), file_bytes(&plain, &folder));
    }

    #[test]
    fn partitions_of_several_counters_add_up_one_by_one(texts in texts(), n_texts in 0usize..4, group in 1usize..40) {
        let folder = Folder::new();
        let (first, second) = texts.split_at(n_texts.min(texts.len()));
        let saved = [first, second].map(|texts| {
            let mut counter = Counter::with_seed(Pattern::GPT2, &special(), 2, 1 << 10, usize::MAX, 7).unwrap();
            counter.set_folder(folder.0.clone());
            for text in texts {
                counter.add_text(text, &no_interrupt).unwrap();
            }
            let Counted::Disk(merged) = counter.finish_scaled(Scale::ONE, Stay::Always, &no_interrupt).unwrap().0 else {
                panic!("counts in memory");
            };
            let path = folder.join(&format!("{}.parts", texts.as_ptr_range().start as usize + texts.len()));
            let ends = write_partitions(&merged, 0..N_PARTITIONS, "{\"a\": 1}", &path, &no_interrupt).unwrap();
            assert!(write_partitions(&merged, 0..N_PARTITIONS + 1, "", &folder.join("none"), &no_interrupt).is_err());
            (path, ends)
        });
        let mut all = HashMap::new();
        for start in (0..N_PARTITIONS).step_by(group) {
            let mut counter = Counter::with_seed(Pattern::GPT2, &[], 1, 1 << 10, usize::MAX, 8).unwrap();
            for partition in start..(start + group).min(N_PARTITIONS) {
                for (path, ends) in &saved {
                    let range = partition.checked_sub(1).map_or(0, |before| ends[before])..ends[partition];
                    counter.add_counts(|each| visit_range(path, range, &no_interrupt, each), 1).unwrap();
                }
            }
            for (pretoken, count) in map_of(&Counted::Memory(counter.finish(&no_interrupt).unwrap())) {
                prop_assert!(all.insert(pretoken, count).is_none());
            }
        }
        prop_assert_eq!(all, reference_counts(&Pattern::GPT2, &special(), &texts));
    }

    #[test]
    fn weights_are_exact_and_rounded_once(
        texts in texts(),
        weights in prop::collection::vec(1u64..40, 4),
        denominator in 1u64..20,
        in_memory in any::<bool>(),
    ) {
        let folder = Folder::new();
        let mut expected: HashMap<Vec<u8>, u64> = HashMap::new();
        let mut counter = Counter::with_table_limit(Pattern::GPT2, &special(), 2, 50, if in_memory { usize::MAX } else { 0 }).unwrap();
        counter.set_folder(folder.0.clone());
        for (text, &weight) in texts.iter().zip(&weights) {
            for (pretoken, count) in reference_counts(&Pattern::GPT2, &special(), std::slice::from_ref(text)) {
                *expected.entry(pretoken).or_insert(0) += count * weight;
            }
            counter.set_weight(weight, &no_interrupt).unwrap();
            counter.add_text(text, &no_interrupt).unwrap();
        }
        for total in expected.values_mut() {
            *total = ((2 * *total + denominator) / (2 * denominator)).max(1);
        }
        let (found, _) = counter.finish_scaled(Scale::new(denominator), stay(!in_memory), &no_interrupt).unwrap();
        prop_assert_eq!(map_of(&found), expected);
    }

    #[test]
    fn documents_in_several_batches_are_counted_whole(
        texts in texts(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        chunk_bytes in 1usize..64,
        with_checkpoint in any::<bool>(),
    ) {
        let folder = Folder::new();
        let whole = texts.concat();
        let ends: Vec<usize> = texts.iter().scan(0, |end, text| { *end += text.len(); Some(*end) }).collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(whole.len() + 1)).collect();
        cuts.retain(|&cut| whole.is_char_boundary(cut));
        cuts.push(whole.len());
        cuts.sort_unstable();
        let mut counter = Counter::new(Pattern::GPT2, &special(), 2, chunk_bytes).unwrap();
        counter.set_folder(folder.0.clone());
        let mut start = 0;
        for (index, &cut) in cuts.iter().enumerate() {
            let is_last = index + 1 == cuts.len();
            let is_open = !is_last;
            let mut batch_ends: Vec<i64> =
                ends.iter().filter(|&&end| start <= end && end < cut || is_last && end == cut && start <= end)
                    .map(|&end| (end - start) as i64).collect();
            // A document that ends at the cut continues with an empty text.
            if is_open { batch_ends.push((cut - start) as i64) }
            counter.add_documents(&whole[start..cut], &batch_ends, is_open, &no_interrupt).unwrap();
            start = cut;
            if with_checkpoint {
                let state = counter.checkpoint(&no_interrupt).unwrap();
                counter = Counter::new(Pattern::GPT2, &special(), 2, chunk_bytes).unwrap();
                counter.resume(&state, &folder.0, &no_interrupt).unwrap();
            }
        }
        let found = counter.finish_scaled(Scale::ONE, Stay::Never, &no_interrupt).unwrap();
        prop_assert_eq!(map_of(&found.0), reference_counts(&Pattern::GPT2, &special(), &texts));
        prop_assert_eq!(found.1.n_bytes, whole.len() as u64);
    }

    #[test]
    fn a_text_in_several_reads_is_counted_whole(
        texts in texts(),
        pattern in prop::sample::select(vec![Some("gpt2"), Some("cl100k"), Some("o200k"), Some(r"\S+"), None]),
    ) {
        let text = texts.concat();
        let pattern = Pattern::new(pattern).unwrap();
        let mut counter = Counter::new(pattern.clone(), &special(), 1, 1).unwrap();
        let mut start = 0;
        loop {
            let rest = &text.as_bytes()[start..];
            let (n, is_done) = counter.add_reader_until(rest, Malformed::Refuse, |_| {}, || true, &no_interrupt).unwrap();
            start += n as usize;
            if is_done { break }
        }
        prop_assert_eq!(start, text.len());
        let (found, totals) = counter.finish_scaled(Scale::ONE, Stay::Never, &no_interrupt).unwrap();
        prop_assert_eq!(totals.n_bytes, text.len() as u64);
        prop_assert_eq!(map_of(&found), reference_counts(&pattern, &special(), &[text]));
    }
}

#[test]
fn full_tables_on_disk_give_the_same_counts() {
    let text = many_pretokens(12_000);
    let folder = Folder::new();
    let (expected, _) = counted(&text, 1, usize::MAX, &folder, false);
    assert!(folder.is_empty(), "nothing is written without a limit");
    let expected = map_of(&expected);
    for (n_threads, table_bytes) in [(1, 400_000), (1, 2 << 20), (2, 1 << 20), (3, 2 << 20)] {
        let (found, cost) = counted(&text, n_threads, table_bytes, &folder, true);
        assert!(matches!(found, Counted::Disk(_)));
        assert!(cost.n_runs > 1, "{cost:?}");
        assert_eq!(map_of(&found), expected);
        drop(found);
        let (found, _) = counted(&text, n_threads, table_bytes, &folder, false);
        assert!(matches!(found, Counted::Memory(_)));
        assert_eq!(map_of(&found), expected);
    }
}

#[test]
fn a_table_stays_within_its_limit() {
    let limit = 1 << 20;
    let mut table = PretokenCounts::new(0);
    let mut n_spilled = 0;
    for n in 0..200_000u64 {
        table.add(format!("{n}").as_bytes(), 1).unwrap();
        table.add(format!("{n:030}").as_bytes(), 1).unwrap();
        if n % 100 == 0 && table.is_full(limit) {
            // Plus the bytes of long pre-tokens since the last check.
            assert!(table.memory() <= limit + 100 * 30);
            assert!(table.memory() > limit / 8, "{} of {n}", table.memory());
            table.clear(limit);
            assert!(table.memory() <= limit && table.n_unique() == 0);
            n_spilled += 1;
        }
    }
    assert!(n_spilled > 3);
}

#[test]
fn checkpoints_merge_runs_that_are_too_many() {
    let folder = Folder::new();
    let mut counter = Counter::with_table_limit(Pattern::GPT2, &[], 2, 1 << 10, usize::MAX).unwrap();
    counter.set_folder(folder.0.clone());
    let mut expected = HashMap::new();
    for n in 0..150 {
        let text = format!("low lower {n}");
        for (pretoken, count) in reference_counts(&Pattern::GPT2, &[], std::slice::from_ref(&text)) {
            *expected.entry(pretoken).or_insert(0) += count;
        }
        counter.add_text(&text, &no_interrupt).unwrap();
        counter.checkpoint(&no_interrupt).unwrap();
    }
    assert!(counter.shared.spill.runs().len() <= 64);
    let (found, _) = counter.finish_scaled(Scale::ONE, Stay::Never, &no_interrupt).unwrap();
    assert_eq!(map_of(&found), expected);
}

#[test]
fn saved_counts_are_added_with_weights() {
    let folder = Folder::new();
    let (one, _) = counted(&many_pretokens(3000), 1, usize::MAX, &folder, false);
    let path = folder.join("one.bin");
    write_counts(&one, "{}", &path, &no_interrupt).unwrap();
    for table_bytes in [usize::MAX, 300_000] {
        let mut counter = Counter::with_table_limit(Pattern::GPT2, &[], 1, 1 << 10, table_bytes).unwrap();
        counter.set_folder(folder.0.clone());
        for weight in [3, 4] {
            counter.add_counts(|each| visit_file(&path, &no_interrupt, each), weight).unwrap();
        }
        let (found, _) = counter.finish_scaled(Scale::new(2), Stay::IfLarge, &no_interrupt).unwrap();
        let expected: HashMap<Vec<u8>, u64> =
            map_of(&one).into_iter().map(|(pretoken, count)| (pretoken, (7 * count).div_ceil(2))).collect();
        assert_eq!(map_of(&found), expected);
    }
    let mut counter = Counter::new(Pattern::GPT2, &[], 1, 1 << 10).unwrap();
    let error = counter.add_counts(|each| visit_file(&path, &no_interrupt, each), u64::MAX / 2).unwrap_err();
    assert!(error.to_string().contains("too large"));
}

#[test]
fn totals_round_half_up_to_at_least_one() {
    let rounded = |denominator, total| Scale::new(denominator).round(total);
    assert_eq!((0..9).map(|total| rounded(4, total)).collect::<Vec<_>>(), [1, 1, 1, 1, 1, 1, 2, 2, 2]);
    assert_eq!((1..9).map(|total| rounded(3, total)).collect::<Vec<_>>(), [1, 1, 1, 1, 2, 2, 2, 3]);
    assert_eq!(rounded(u64::MAX, u64::MAX), 1);
    assert_eq!(rounded(2, u64::MAX), 1 << 63);
    assert_eq!(rounded(1, 0), 0);
}

#[test]
fn drop_below_removes_and_reports_rare_pretokens() {
    let folder = Folder::new();
    let text = "a a a a b b b c c d ".to_owned() + &" e".repeat(2) + " " + &"long".repeat(90);
    for table_bytes in [usize::MAX, 0] {
        let mut counter =
            Counter::with_table_limit(Pattern::new(Some(r"\S+")).unwrap(), &[], 2, 4, table_bytes).unwrap();
        counter.set_folder(folder.0.clone());
        for word in text.split_whitespace() {
            counter.add_text(word, &no_interrupt).unwrap();
        }
        let dropped = match counter.finish_scaled(Scale::ONE, Stay::IfLarge, &no_interrupt).unwrap().0 {
            Counted::Memory(mut counts) => {
                let dropped = counts.drop_below(2);
                assert_eq!((counts.n_unique(), counts.n_pretokens), (4, 11));
                assert_eq!(counts.n_unique_bytes(), 4);
                (dropped, as_map(&counts))
            }
            Counted::Disk(mut merged) => {
                assert_eq!(merged.drop_below(1), (0, 0));
                let dropped = merged.drop_below(2);
                assert_eq!(merged.drop_below(2), (0, 0));
                (dropped, map_of(&Counted::Disk(merged)))
            }
        };
        assert_eq!(dropped.0, (2, 2));
        assert_eq!(dropped.1[&b"b"[..]], 3);
        assert_eq!(dropped.1.len(), 4);
    }
}

#[test]
fn damaged_or_truncated_files_of_counts_are_rejected() {
    let folder = Folder::new();
    let mut counter = Counter::new(Pattern::GPT2, &[], 1, 1 << 10).unwrap();
    counter.add_text(&format!("low low lower newest {} 今日は", "x".repeat(300)), &no_interrupt).unwrap();
    let counts = Counted::Memory(counter.finish(&no_interrupt).unwrap());
    let path = folder.join("counts.bin");
    write_counts(&counts, r#"{"pattern": "gpt2"}"#, &path, &no_interrupt).unwrap();
    let good = std::fs::read(&path).unwrap();
    assert_eq!(read_header(&path).unwrap().0, r#"{"pattern": "gpt2"}"#);
    assert_eq!(as_map(&read_counts(&path, &no_interrupt).unwrap()), map_of(&counts));
    for place in 0..good.len() {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[place] ^= 1 << bit;
            std::fs::write(&path, &bad).unwrap();
            assert!(matches!(read_counts(&path, &no_interrupt), Err(Error::Invalid(_))), "byte {place}, bit {bit}");
        }
        std::fs::write(&path, &good[..place]).unwrap();
        assert!(matches!(read_counts(&path, &no_interrupt), Err(Error::Invalid(_))), "{place} bytes");
    }
    std::fs::write(&path, [&good[..], b"\0"].concat()).unwrap();
    assert!(matches!(read_counts(&path, &no_interrupt), Err(Error::Invalid(_))));
}

#[test]
fn damaged_or_truncated_runs_are_rejected() {
    let folder = Folder::new();
    let mut counter = Counter::new(Pattern::GPT2, &[], 1, 1 << 10).unwrap();
    counter.set_folder(folder.0.clone());
    counter.add_documents("low lower supercalifragilistic", &[30], true, &no_interrupt).unwrap();
    counter.add_documents(" newest open", &[7, 12], true, &no_interrupt).unwrap();
    let state = counter.checkpoint(&no_interrupt).unwrap();
    drop(counter);
    let counted = |folder: &Path| {
        let mut counter = Counter::new(Pattern::GPT2, &[], 1, 1 << 10)?;
        counter.resume(&state, folder, &no_interrupt)?;
        counter.finish_scaled(Scale::ONE, Stay::Never, &no_interrupt).map(|(counted, _)| map_of(&counted))
    };
    let expected = reference_counts(
        &Pattern::GPT2,
        &[],
        &["low lower supercalifragilistic newest".to_owned(), " open".to_owned()],
    );
    let files: Vec<PathBuf> = std::fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(counted(&folder.0).unwrap(), expected);
    assert!(!files.is_empty());
    for path in files {
        let good = std::fs::read(&path).unwrap();
        for place in 0..good.len() {
            let mut bad = good.clone();
            bad[place] ^= 0x10;
            std::fs::write(&path, &bad).unwrap();
            assert!(counted(&folder.0).is_err(), "{path:?}: byte {place}");
        }
        std::fs::write(&path, &good[1..]).unwrap();
        assert!(counted(&folder.0).is_err());
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(counted(&folder.0), Err(Error::Io(_))));
        std::fs::write(&path, &good).unwrap();
    }
    let mut counter = Counter::new(Pattern::GPT2, &["<s>".to_owned()], 1, 1 << 10).unwrap();
    assert!(counter.resume(&state, &folder.0, &no_interrupt).is_err(), "other special tokens");
}

#[test]
fn failed_writes_are_output_errors_and_leave_no_files() {
    let folder = Folder::new();
    let nowhere = folder.join("no/such/folder");
    let mut counter = Counter::with_table_limit(Pattern::GPT2, &[], 2, 1 << 10, 0).unwrap();
    counter.set_folder(nowhere.clone());
    let text = many_pretokens(2000);
    let error = counter
        .add_text(&text, &no_interrupt)
        .and_then(|()| counter.finish_scaled(Scale::ONE, Stay::IfLarge, &no_interrupt).map(drop))
        .unwrap_err();
    assert!(matches!(error, Error::Output { path, .. } if path.starts_with(&nowhere)));
    assert!(folder.is_empty());
}

#[test]
fn an_interrupt_ends_a_checkpoint() {
    let folder = Folder::new();
    let mut counter = Counter::new(Pattern::GPT2, &[], 2, 1 << 10).unwrap();
    counter.set_folder(folder.0.clone());
    counter.add_text(&many_pretokens(2000), &no_interrupt).unwrap();
    let error = counter.checkpoint(&|| Err(Error::Interrupted)).unwrap_err();
    assert!(matches!(error, Error::Interrupted));
    drop(counter);
    assert!(folder.is_empty(), "an incomplete run is removed");
}
