//! Writes `src/text/unicode/classes.bin` from the Unicode data in `regex-syntax`, the same data that custom patterns see:
//! `cargo run --example generate_unicode_tables > crates/bytemill/src/text/unicode/classes.bin`

use bytemill::text::unicode::Class;
use regex_syntax::hir::{Class as HirClass, HirKind};
use std::collections::HashMap;
use std::io::Write;

/// Code points in one second-stage block.
const BLOCK: usize = 128;

fn members(expression: &str) -> Vec<(u32, u32)> {
    let hir = regex_syntax::parse(expression).expect("the expressions below are valid");
    let HirKind::Class(HirClass::Unicode(class)) = hir.kind() else {
        panic!("{expression} is not a class of characters");
    };
    class.ranges().iter().map(|range| (range.start() as u32, range.end() as u32)).collect()
}

fn main() {
    let mut classes = vec![Class::Other as u8; 0x11_0000];
    for (expression, class) in [
        (r"[\p{Lu}\p{Lt}]", Class::Upper),
        (r"\p{Ll}", Class::Lower),
        (r"[\p{Lm}\p{Lo}]", Class::OtherLetter),
        (r"\p{M}", Class::Mark),
        (r"\p{N}", Class::Number),
        (r"\s", Class::Space),
        (r"[\r\n]", Class::Newline),
    ] {
        for (first, last) in members(expression) {
            classes[first as usize..=last as usize].fill(class as u8);
        }
    }

    let mut blocks: Vec<&[u8]> = Vec::new();
    let mut number_of = HashMap::new();
    let index: Vec<u8> = classes
        .chunks(BLOCK)
        .map(|block| {
            *number_of.entry(block).or_insert_with(|| {
                blocks.push(block);
                u8::try_from(blocks.len() - 1).expect("block numbers must fit a byte")
            })
        })
        .collect();
    let file = [index, blocks.concat()].concat();
    std::io::stdout().write_all(&file).expect("standard output can be written");
}
