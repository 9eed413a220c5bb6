use super::*;
use proptest::prelude::*;

fn units(texts: &[&str], kind: UnitKind) -> Vec<Vec<String>> {
    let text = texts.concat();
    let ends: Vec<usize> = texts
        .iter()
        .scan(0, |end, text| {
            Some({
                *end += text.len();
                *end
            })
        })
        .collect();
    let units = Units::new(&text, &ends, kind).unwrap();
    let mut first = 0;
    let mut all = Vec::new();
    for &end in &units.ends {
        let document = first..end as usize;
        all.push(document.map(|k| text[units.starts[k] as usize..units.stops[k] as usize].to_owned()).collect());
        first = end as usize;
    }
    all
}

#[test]
fn lines_and_paragraphs_have_no_white_space_around_them() {
    let texts = ["  one \r\n\n two\u{3000}\nthree \n \n\n four", "", "\n", "five\n"];
    assert_eq!(units(&texts, UnitKind::Line), [vec!["one", "two", "three", "four"], vec![], vec![], vec!["five"]]);
    let paragraphs = [vec!["one", "two\u{3000}\nthree", "four"], vec![], vec![], vec!["five"]];
    assert_eq!(units(&texts, UnitKind::Paragraph), paragraphs);
}

#[test]
fn ends_that_do_not_divide_the_text_are_refused() {
    for (text, ends) in [("abc", vec![1]), ("abc", vec![2, 1, 3]), ("é", vec![1, 2])] {
        assert!(Units::new(text, &ends, UnitKind::Line).is_err());
    }
}

proptest! {
    #[test]
    fn lines_are_those_of_the_standard_library(text in "[ab é\r\n\u{a0}]{0,40}") {
        let expected: Vec<&str> = text.split('\n').map(str::trim).filter(|line| !line.is_empty()).collect();
        prop_assert_eq!(units(&[&text], UnitKind::Line), [expected]);
    }

    #[test]
    fn paragraphs_are_runs_of_lines(text in "[ab \r\n\u{a0}]{0,40}") {
        let lines: Vec<&str> = text.split('\n').collect();
        let runs = lines.chunk_by(|a, b| a.trim().is_empty() == b.trim().is_empty());
        let expected: Vec<String> =
            runs.map(|run| run.join("\n").trim().to_owned()).filter(|paragraph| !paragraph.is_empty()).collect();
        prop_assert_eq!(units(&[&text], UnitKind::Paragraph), [expected]);
    }
}
