use super::*;
use crate::sys::interrupt::no_interrupt;
use proptest::prelude::*;

/// Tokens of all lengths around those of a slot and [`COUNTED`], gaps between ids, a special token.
fn vocab() -> Vocab {
    let mut tokens: Vec<(u32, Vec<u8>)> = (0..=255).map(|byte| (u32::from(byte) * 2, vec![byte])).collect();
    tokens.extend((2..=70).map(|n_bytes| (1000 + n_bytes, (0..n_bytes as u8).collect())));
    tokens.push((70_000, vec![b'x'; 1000]));
    Vocab::from_merges(tokens, &[], vec![("<|end of all of it|>".to_owned(), 80_000)]).unwrap()
}

/// Mostly ids of tokens, and a few unknown ids.
fn ids() -> impl Strategy<Value = Vec<u32>> {
    let known = prop_oneof![8 => (0u32..256).prop_map(|byte| byte * 2), 8 => 1002u32..=1070, 1 => Just(70_000), 1 => Just(80_000)];
    let any = prop_oneof![1000 => known, 1 => 0u32..80_010, 1 => any::<u32>()];
    prop::collection::vec(any, 0..600)
}

fn decoded(decoder: &Decoder, ids: &[impl SharedId]) -> Result<Vec<u8>> {
    let mut out = vec![MaybeUninit::uninit(); decoder.n_bytes(ids, &no_interrupt)?];
    decoder.fill(ids, &mut out, &no_interrupt)?;
    // SAFETY: `fill` has initialized all of it.
    Ok(out.into_iter().map(|byte| unsafe { byte.assume_init() }).collect())
}

proptest! {
    #[test]
    fn decoding_by_slots_equals_the_plain_loop(ids in ids()) {
        let vocab = vocab();
        let mut plain = Vec::new();
        let decoder = Decoder::new(&vocab).unwrap();
        let done = decoded(&decoder, &ids);
        let shared: Vec<AtomicU32> = ids.iter().copied().map(AtomicU32::new).collect();
        let of_shared = decoded(&decoder, &shared);
        prop_assert_eq!(done.as_ref().ok(), of_shared.as_ref().ok());
        match vocab.decode(ids.iter().copied(), &mut plain) {
            Ok(()) => prop_assert_eq!(done.unwrap(), plain),
            Err(Error::UnknownId(unknown)) => {
                prop_assert!(matches!(done, Err(Error::UnknownId(id)) if id == unknown));
            }
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    #[test]
    fn ids_that_change_after_they_were_counted_are_refused(counted in ids(), ids in ids()) {
        let decoder = Decoder::new(&vocab()).unwrap();
        let n_bytes = decoder.n_bytes(&counted, &no_interrupt);
        prop_assume!(n_bytes.is_ok());
        let n_bytes = n_bytes.unwrap();
        let filled = decoder.fill(&ids, &mut vec![MaybeUninit::uninit(); n_bytes], &no_interrupt);
        match decoder.n_bytes(&ids, &no_interrupt) {
            Ok(n_now) => prop_assert_eq!(filled.is_ok(), n_now == n_bytes),
            Err(_) => prop_assert!(filled.is_err()),
        }
    }
}

#[test]
fn blocks_end_anywhere() {
    let vocab = vocab();
    let decoder = Decoder::new(&vocab).unwrap();
    for n_ids in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 1] {
        for id in [130, 1015, 1016, 1017] {
            let mut plain = Vec::new();
            vocab.decode(vec![u32::from(id); n_ids], &mut plain).unwrap();
            let narrow: Vec<AtomicU16> = (0..n_ids).map(|_| AtomicU16::new(id)).collect();
            assert_eq!(decoded(&decoder, &narrow).unwrap(), plain, "{n_ids} times {id}");
        }
    }
}

#[test]
fn an_interrupt_ends_either_pass() {
    let decoder = Decoder::new(&vocab()).unwrap();
    let ids = vec![130; 3 * IDS_PER_CHECK];
    let n_checks = AtomicU32::new(0);
    let until = |n: u32| {
        n_checks.store(0, Relaxed);
        let n_checks = &n_checks;
        move || if n_checks.fetch_add(1, Relaxed) < n { Ok(()) } else { Err(Error::Interrupted) }
    };
    let mut out = vec![MaybeUninit::uninit(); ids.len()];
    for n in [0, 1, 2] {
        assert!(matches!(decoder.n_bytes(&ids, &until(n)), Err(Error::Interrupted)));
        assert!(matches!(decoder.fill(&ids, &mut out, &until(n)), Err(Error::Interrupted)));
        assert_eq!(n_checks.load(Relaxed), n + 1);
    }
    assert_eq!(decoder.n_bytes(&ids, &until(3)).unwrap(), ids.len());
    decoder.fill(&ids, &mut out, &until(3)).unwrap();
}
