use super::*;

fn assert_round_trip<S: Slot>(symbols: &[u32]) {
    for &symbol in symbols {
        let (first, last) = (S::first(symbol), S::last(symbol));
        assert_eq!((first.symbol(), last.symbol()), (symbol, symbol));
        assert!(first.is_start() && !last.is_start());
        for other in [S::SEPARATOR, S::FILLER] {
            assert!(first != other && last != other && first != last);
        }
    }
    assert!(S::SEPARATOR.is_start() && !S::FILLER.is_start());
    assert!(S::SEPARATOR.symbol() as usize >= S::MAX_SYMBOLS);
}

#[test]
fn slots_round_trip_symbols() {
    assert_round_trip::<Narrow>(&[0, 255, 256, 0x7FFC, 0x7FFD]);
    assert_round_trip::<Wide>(&[0, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x1_0000, 0x7FFF_FFFD]);
}
