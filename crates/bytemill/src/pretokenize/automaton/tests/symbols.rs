use super::super::dfa::collect_classes;
use super::*;

fn classes(expressions: &[&str]) -> Vec<ClassUnicode> {
    let mut classes = Vec::new();
    for expression in expressions {
        assert!(collect_classes(&regex_syntax::parse(expression).unwrap(), &mut classes));
    }
    assert_eq!(classes.len(), expressions.len());
    classes
}

#[test]
fn the_symbol_of_a_character_says_which_classes_it_is_in() {
    let classes = classes(&[r"\p{L}", r"\s", r"\n", "[ -~\u{d000}-\u{ffff}]", r"\P{L}", "[\u{10ffff}]", r"[^\n]"]);
    let symbols = Symbols::new(&classes).unwrap();
    for character in '\0'..=char::MAX {
        let symbol = symbols.of(character);
        for (index, class) in classes.iter().enumerate() {
            let is_in = class.ranges().iter().any(|range| (range.start()..=range.end()).contains(&character));
            assert_eq!(symbols.members(index).contains(&symbol), is_in, "{character:?} {index}");
        }
        if character.is_ascii() {
            assert_eq!(symbols.ascii[character as usize], symbol);
        }
    }
    assert_eq!(symbols.of('\n'), LINE_FEED);
    assert!(symbols.used.len() < 12 && symbols.used.iter().all(|&symbol| usize::from(symbol) < symbols.n));
}

#[test]
fn an_alphabet_has_a_bound() {
    let single: Vec<String> = (0..MAX_SYMBOLS).map(|n| format!("[\\x{{{:x}}}]", 0x100 + 2 * n)).collect();
    let single: Vec<&str> = single.iter().map(String::as_str).collect();
    assert!(Symbols::new(&classes(&single)).is_none());
    assert!(Symbols::new(&classes(&single[1..])).is_some());
}
