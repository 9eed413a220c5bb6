//! No source file enables a CPU feature that detection does not check.

use super::FEATURE_SETS;
use std::fs;
use std::path::{Path, PathBuf};

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The lists in `target_feature(enable = "…")` attributes and `implement!("…", …)`.
fn enabled(source: &str) -> Vec<Vec<&str>> {
    let lists =
        ["target_feature(enable = \"", "implement!(\""].into_iter().flat_map(|start| source.split(start).skip(1));
    lists.map(|rest| rest.split('"').next().unwrap().split(',').collect()).collect()
}

fn names(source: &str, token: &str) -> bool {
    source.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == token)
}

/// What is wrong with a file, if anything.
fn problem(file: &str, source: &str) -> Option<String> {
    if source.contains("feature_detected!(") {
        return Some(format!("{file} detects CPU features; only sys/cpu.rs does"));
    }
    let tokens: Vec<_> = FEATURE_SETS.iter().filter(|(token, _)| names(source, token)).collect();
    let unchecked = enabled(source).into_iter().find(|list| {
        let is_checked = |checked: &[&str]| list.iter().all(|feature| checked.contains(feature));
        !tokens.iter().any(|(_, checked)| is_checked(checked))
    })?;
    Some(format!("{file} enables {unchecked:?}, which no token named in it checks"))
}

#[test]
fn every_enabled_feature_is_checked_by_a_token_named_in_the_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&root, &mut files);
    let mut n_attributes = 0;
    for path in files {
        let file = path.strip_prefix(&root).unwrap().to_str().unwrap().replace('\\', "/");
        if file.starts_with("sys/cpu") {
            continue;
        }
        let source = fs::read_to_string(&path).unwrap();
        n_attributes += enabled(&source).len();
        assert_eq!(problem(&file, &source), None);
    }
    assert!(n_attributes > 0, "the scan finds no attribute");
}

#[test]
fn a_feature_that_no_named_token_checks_is_found() {
    let source =
        |features: &str, token: &str| format!("#[target_feature(enable = \"{features}\")] fn f(_: {token}) {{}}");
    assert_eq!(problem("x.rs", &source("avx2,bmi1", "Avx2")), None);
    for (features, token) in [("avx2,fma", "Avx2"), ("avx2", "Avx512"), ("avx2", "NotAvx2"), ("aes,avx2", "Aes")] {
        assert!(problem("x.rs", &source(features, token)).is_some(), "{features} by {token}");
    }
}
