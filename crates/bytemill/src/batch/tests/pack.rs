use super::*;
use crate::batch::pack::char_boundary;
use crate::encode::{Allowed, no_interrupt};
use crate::pretokenize::Pattern;
use crate::train::count::Counts;
use crate::train::merges::{Ties, learn};
use crate::vocab::Vocab;
use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_64_with_seed;

const FRAGMENTS: [&str; 16] = [
    "low",
    " lower",
    " newest",
    "s",
    "<s>",
    "<s><e>",
    "<",
    "s>",
    "\n\n",
    " 123",
    "é一ü",
    " 日本語",
    "zzzz",
    "'s",
    " ",
    "ا",
];

fn encoder(n_merges: usize, pattern: &str) -> Arc<Encoder> {
    let counts = Counts::from_items(FRAGMENTS.iter().map(|word| (word.as_bytes().to_vec(), 1))).unwrap();
    let learned = learn(&counts, n_merges, Ties::Bytes, 1, 1, |_| Ok(())).unwrap();
    let mut tokens: Vec<(u32, Vec<u8>)> = (0..=255).map(|byte| (u32::from(byte), vec![byte])).collect();
    let mut merges = Vec::new();
    for (merge, id) in learned.iter().zip(256..) {
        let part = |symbol: u32| tokens[symbol as usize].1.clone();
        let (left, right) = (part(merge.left), part(merge.right));
        tokens.push((id, [left.clone(), right.clone()].concat()));
        merges.push((left, right));
    }
    let special = vec![("<s>".to_owned(), START), ("<s><e>".to_owned(), BOTH)];
    let vocab = Vocab::from_merges(tokens, &merges, special).unwrap();
    Arc::new(Encoder::new(vocab, Pattern::new(Some(pattern)).unwrap()).unwrap())
}

const START: u32 = 1000;
const BOTH: u32 = 1001;

/// The ids of one document, framed by hand.
fn alone(encoder: &Encoder, allowed: Allowed, frame: &Frame, text: &str) -> Vec<u32> {
    let mut ids: Vec<u32> = Vec::new();
    encoder.encode(text, allowed, &mut ids, &no_interrupt).unwrap();
    if ids.is_empty() {
        return ids;
    }
    if frame.stripped.is_some() && ids.last().copied() == frame.stripped {
        ids.pop();
    }
    let mut framed = frame.prefix.clone();
    for n in 0..=frame.prefix.len() {
        if ids.starts_with(&frame.prefix[n..]) {
            framed.truncate(n);
            break;
        }
    }
    framed.extend(ids);
    if frame.suffix.is_some() && framed.last().copied() != frame.suffix {
        framed.extend(frame.suffix);
    }
    framed
}

fn frames() -> impl Strategy<Value = Frame> {
    let id = prop::sample::select(vec![START, BOTH, u32::from(b's'), 7]);
    (prop::collection::vec(id.clone(), 0..3), prop::option::of(id.clone()), prop::option::of(id))
        .prop_map(|(prefix, suffix, stripped)| Frame { prefix, suffix, stripped })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn packed_documents_have_the_ids_of_each_document_alone(
        documents in prop::collection::vec(
            prop::collection::vec(prop::sample::select(FRAGMENTS.to_vec()), 0..60).prop_map(|fragments| fragments.concat()),
            1..12,
        ),
        batch_bytes in 1usize..200,
        per_call in 1usize..4,
        n_threads in 1usize..4,
        max_chunk in 1usize..60,
        joined in 1usize..30,
        hashed in 1usize..40,
        fraction in prop::option::of(0u64..=4),
        frame in frames(),
        pattern in prop::sample::select(vec!["gpt2", "cl100k", "o200k", r"\S+"]),
        allowed in 0usize..2,
        resumes in any::<bool>(),
    ) {
        let encoder = encoder(30, pattern);
        let allowed = [StreamAllowed::All, StreamAllowed::None][allowed].clone();
        let split = fraction.map(|quarters| Split { seed: 5, below: quarters * (u64::MAX / 4) });
        let mut expected: [Vec<Vec<u32>>; 2] = Default::default();
        let mut n_empty = [0; 2];
        let mut n_bytes = [0; 2];
        for document in &documents {
            let hash = xxh3_64_with_seed(&document.as_bytes()[..document.len().min(hashed)], 5);
            let side = usize::from(split.is_some_and(|split| hash < split.below));
            let ids = alone(&encoder, allowed.as_allowed(), &frame, document);
            n_bytes[side] += document.len() as u64;
            if ids.is_empty() { n_empty[side] += 1 } else { expected[side].push(ids) }
        }

        let text = documents.concat();
        let ends: Vec<usize> = documents.iter().scan(0, |end, document| { *end += document.len(); Some(*end) }).collect();
        let batches = cut_anywhere(&text, &ends, batch_bytes);
        let make = || {
            let mut made = DocumentEncoder::new(
                Arc::clone(&encoder), allowed.clone(), n_threads, frame.clone(), split,
            );
            made.sizes = Sizes { max_chunk, joined, hashed };
            made
        };
        let mut packed = make();
        let mut ids: [Vec<u32>; 2] = Default::default();
        let mut found_ends: [Vec<usize>; 2] = Default::default();
        let mut found_empty = [0; 2];
        let mut found_bytes = [0; 2];
        for some in batches.chunks(per_call) {
            let done: [Side<u32>; 2] = packed.encode(some, &no_interrupt).unwrap();
            for (side, done) in done.into_iter().enumerate() {
                let base = ids[side].len();
                found_ends[side].extend(done.ends.iter().map(|&end| base + usize::try_from(end).unwrap()));
                ids[side].extend(done.ids.concat());
                found_empty[side] += done.n_empty;
                found_bytes[side] += done.n_bytes.iter().sum::<u64>();
            }
            if resumes {
                let carry = packed.carry();
                packed = make();
                packed.resume(carry);
            }
        }
        for side in 0..2 {
            let wanted: Vec<usize> = expected[side].iter().scan(0, |end, ids| { *end += ids.len(); Some(*end) }).collect();
            prop_assert_eq!(&ids[side], &expected[side].concat());
            prop_assert_eq!(&found_ends[side], &wanted);
        }
        prop_assert_eq!(found_empty, n_empty);
        prop_assert_eq!(found_bytes, n_bytes);
        prop_assert_eq!(packed.carry(), None);
    }
}

/// Batches of about `batch_bytes`. A document that does not fit continues in the next one.
fn cut_anywhere<'t>(text: &'t str, ends: &[usize], batch_bytes: usize) -> Vec<Batch<'t>> {
    let mut batches = Vec::new();
    let (mut start, mut own) = (0, Vec::new());
    for &end in ends {
        while end - start > batch_bytes {
            let cut = char_boundary(text, start + batch_bytes).max(start);
            own.push(cut - start);
            batches.push(Batch::new(&text[start..cut], std::mem::take(&mut own), true).unwrap());
            if cut == start {
                break; // a character of more bytes than a batch
            }
            start = cut;
        }
        own.push(end - start);
        if end - start >= batch_bytes / 2 {
            batches.push(Batch::new(&text[start..end], std::mem::take(&mut own), false).unwrap());
            start = end;
        }
    }
    if !own.is_empty() {
        batches.push(Batch::new(&text[start..], own, false).unwrap());
    }
    batches
}

#[test]
fn a_refused_token_is_reported_with_its_offset_in_the_document() {
    let refuse = || {
        let mut made = DocumentEncoder::new(encoder(5, "gpt2"), StreamAllowed::Refused, 2, Frame::default(), None);
        made.sizes = Sizes { max_chunk: 8, joined: 8, hashed: 8 };
        made
    };
    let text = format!("{}<s>", "low lower ".repeat(20));
    let ends = vec![4, text.len()];
    let whole = Batch::new(&text, ends, false).unwrap();
    let error = refuse().encode::<u32>(&[whole], &no_interrupt).unwrap_err();
    assert_eq!(error.to_string(), "special token \"<s>\" at byte 196");
    let mut packed = refuse();
    packed.encode::<u32>(&[Batch::new(&text[..201], vec![4, 201], true).unwrap()], &no_interrupt).unwrap();
    let rest = Batch::new(&text[201..], vec![2], false).unwrap();
    let error = packed.encode::<u32>(&[rest], &no_interrupt).unwrap_err();
    assert_eq!(error.to_string(), "special token \"<s>\" at byte 196");
}

#[test]
fn a_suffix_does_not_depend_on_the_document_before() {
    let frame = Frame { prefix: vec![], suffix: Some(BOTH), stripped: Some(START) };
    let mut packed = DocumentEncoder::new(encoder(5, "gpt2"), StreamAllowed::All, 1, frame, None);
    let batch = Batch::new("low<s>", vec![3, 6], false).unwrap();
    let [side, _] = packed.encode::<u32>(&[batch], &no_interrupt).unwrap();
    let ids = side.ids.concat();
    assert_eq!(ids[ids.len() - 2..], [BOTH, BOTH]);
    assert_eq!((side.ends, side.n_empty), (vec![ids.len() as u64 - 1, ids.len() as u64], 0));
}

#[test]
fn invalid_ends_are_errors() {
    for (text, ends, is_open) in [
        ("ab", vec![1], false),
        ("ab", vec![2, 1], false),
        ("é", vec![1, 2], false),
        ("", vec![], true),
        ("a", vec![2], false),
    ] {
        assert!(Batch::new(text, ends, is_open).is_err());
    }
    assert!(Batch::new("", vec![], false).is_ok());
    assert!(Batch::new("ab", vec![0, 0, 2, 2], true).is_ok());
}

#[test]
fn documents_are_split_by_their_xxh3() {
    let split = Split { seed: 42, below: 1 << 63 };
    let texts = ["", "a", "the quick brown fox", "日本語"];
    for text in texts {
        let side = usize::from(xxh3_64_with_seed(text.as_bytes(), 42) < 1 << 63);
        assert_eq!(split.side_of("", text, 1 << 20), side);
        assert_eq!(split.side_of("", &format!("{text} and more"), text.len()), side);
    }
    assert_eq!(split.side_of("the quick", " brown fox", 1 << 20), split.side_of("", texts[2], 1 << 20));
}
