use super::long::merge_long;
use super::short::{SHORT, merge_short};
use super::{merge, steps};
use crate::pairs::{NONE, PairTable};
use crate::pulse::no_pulse;
use proptest::prelude::*;

/// Every step looks at every pair and rebuilds the sequence.
fn merge_plainly(table: &PairTable, pretoken: &[u8]) -> Vec<u32> {
    let mut symbols: Vec<u32> = pretoken.iter().map(|&byte| u32::from(byte)).collect();
    loop {
        let lowest = symbols.windows(2).enumerate().map(|(at, pair)| (table.get(pair[0], pair[1]), at)).min();
        match lowest {
            Some((symbol, at)) if symbol != NONE => drop(symbols.splice(at..at + 2, [symbol])),
            _ => return symbols,
        }
    }
}

/// Merges over a small alphabet: each joins two symbols that exist by then.
fn table() -> impl Strategy<Value = PairTable> {
    prop::collection::vec((any::<u32>(), any::<u32>()), 0..60).prop_map(|choices| {
        let mut table = PairTable::new(choices.len());
        let mut made = 256;
        let mut known: Vec<u32> = (97..101).collect();
        for (left, right) in choices {
            let (left, right) = (known[left as usize % known.len()], known[right as usize % known.len()]);
            if table.get(left, right) == NONE {
                table.insert(left, right, made).unwrap();
                known.push(made);
                made += 1;
            }
        }
        table
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn short_and_long_merging_equal_the_plain_one(
        table in table(),
        pretoken in prop::collection::vec(97u8..101, 2..=SHORT),
    ) {
        let expected = merge_plainly(&table, &pretoken);
        let (mut short, mut long) = (Vec::new(), Vec::new());
        merge_short(&table, &pretoken, &mut short);
        merge_long(&table, &pretoken, &mut long, |_| {}, &no_pulse).unwrap();
        prop_assert_eq!(&short, &expected);
        prop_assert_eq!(&long, &expected);
    }

    #[test]
    fn long_pretokens_equal_the_plain_merging(table in table(), pretoken in prop::collection::vec(97u8..101, 65..300)) {
        let mut merged = Vec::new();
        merge(&table, &pretoken, &mut merged, &no_pulse).unwrap();
        prop_assert_eq!(merged, merge_plainly(&table, &pretoken));
    }

    #[test]
    fn steps_replayed_give_the_symbols(table in table(), pretoken in prop::collection::vec(97u8..101, 0..80)) {
        let mut parts: Vec<(usize, u32)> = pretoken.iter().map(|&byte| u32::from(byte)).enumerate().collect();
        for step in steps(&table, &pretoken) {
            let at = parts.iter().position(|&(offset, _)| offset == step.offset).unwrap();
            prop_assert_eq!((parts[at].1, parts[at + 1].1), (step.left, step.right));
            parts.splice(at..at + 2, [(step.offset, step.symbol)]);
        }
        let mut merged = Vec::new();
        merge(&table, &pretoken, &mut merged, &no_pulse).unwrap();
        prop_assert_eq!(parts.into_iter().map(|(_, symbol)| symbol).collect::<Vec<_>>(), merged);
    }
}
