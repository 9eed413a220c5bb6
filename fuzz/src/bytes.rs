//! From arbitrary bytes to what the parts take.

/// Characters of every class and those that the patterns name.
const TELLING: &str = "aZésSſtTmMdDlLvVrReEkK'’ \t\r\n\u{b}\u{85}\u{a0}\u{180e}\u{2003}\u{2028}\u{3000}019²½٣Ⅷ.,-/!\
    \u{300}\u{301}\u{1f3fb}😀ǅʰªあ一한рЖशि\u{94d}ا\u{200d}\u{200b}_\0\u{7f}\u{345}\u{212a}ひア・。゛\u{3040}\u{e000}";
const ASCII: &str = "aaBsStlL e'' \t\r\n01.!/";

/// A text: the first byte says how the others are read, as UTF-8 with what is malformed replaced, as characters out of a
/// short list, or as characters each with the length of its run.
pub fn text(data: &[u8]) -> String {
    let Some((&mode, data)) = data.split_first() else { return String::new() };
    let characters: Vec<char> = if mode & 4 == 0 { TELLING } else { ASCII }.chars().collect();
    let character = |byte: u8| characters[usize::from(byte) % characters.len()];
    match mode % 4 {
        0 => String::from_utf8_lossy(data).into_owned(),
        1 | 2 => data.iter().map(|&byte| character(byte)).collect(),
        _ => data
            .chunks(2)
            .flat_map(|pair| {
                let length = usize::from(pair.get(1).copied().unwrap_or(1)) % 80;
                std::iter::repeat_n(character(pair[0]), if length < 60 { 1 + length % 3 } else { length })
            })
            .collect(),
    }
}
