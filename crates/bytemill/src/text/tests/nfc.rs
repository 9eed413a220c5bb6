use super::*;
use crate::sys::interrupt::no_interrupt;

#[test]
fn normalizing_in_chunks_equals_normalizing_at_once() {
    let text = "e\u{301} >\u{338} \u{212B}日本 \u{1100}\u{1161}\u{11A8} a\u{301}\u{323}".repeat(90_000);
    assert!(text.len() > 2 * CHUNK);
    let whole: String = text.nfc().map(|(character, _)| character).collect();
    assert_eq!(normalize(&text, &no_interrupt).unwrap(), whole);
    assert_eq!(normalize(&whole, &no_interrupt).unwrap(), whole);
    assert!(matches!(normalize("naïve日本", &no_interrupt).unwrap(), Cow::Borrowed(_)));
}
