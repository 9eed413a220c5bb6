use super::*;
use proptest::prelude::*;

fn read(text: &str) -> Option<Vec<(u32, Vec<u8>)>> {
    Some(read_ranks(text.as_bytes())?.iter().map(|(rank, token)| (rank, token.to_vec())).collect())
}

#[test]
fn line_ends_vary_and_lines_may_be_empty() {
    let expected = vec![(5, b"ab".to_vec()), (4_294_967_295, vec![0, 255, 1, 2])];
    for text in ["YWI= 5\nAP8BAg== 4294967295", "\nYWI= 005\r\n\r\n\nAP8BAg== 4294967295\n"] {
        assert_eq!(read(text).as_ref(), Some(&expected));
    }
}

#[test]
fn other_content_is_refused() {
    let lines = [
        "YWI=",
        "YWI= ",
        " 5",
        "YWI=  5",
        "YWI=\t5",
        "YWI= 5 ",
        " YWI= 5",
        "YWI= +5",
        "YWI= -5",
        "YWI= 5x",
        "YWI 5",
        "YWJ= 5",
        "Y*I= 5",
        "= 5",
        "==== 5",
        "YWI== 5",
        "YWI=YWI= 5",
        "YWI= 4294967296",
        "YWI= 00000000005",
        "YWI= ٣",
        "YWI= 5\rYWM= 6",
        "日 5",
        "\u{feff}YWI= 5",
    ];
    for line in lines {
        assert_eq!(read(line), None, "{line:?}");
        assert_eq!(read(&format!("YQ== 1\n{line}\nYg== 2\n")), None, "{line:?}");
    }
}

proptest! {
    #[test]
    fn written_tokens_are_read_back(tokens in prop::collection::vec((any::<u32>(), prop::collection::vec(any::<u8>(), 1..40)), 0..40)) {
        let lines: Vec<String> =
            tokens.iter().map(|(rank, token)| format!("{} {rank}\n", STANDARD.encode(token))).collect();
        prop_assert_eq!(read(&lines.concat()), Some(tokens));
    }

    #[test]
    fn no_input_panics(data in prop::collection::vec(prop::sample::select(b"YWI=A/+5 \n\r\t0\xff".to_vec()), 0..60)) {
        let _ = read_ranks(&data);
    }
}
