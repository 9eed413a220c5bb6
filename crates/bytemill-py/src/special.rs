//! Special tokens and their rules, from Python arguments.

use crate::signals::TokenizerError;
use bytemill::special::Rules;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyMapping;

/// An id among the arguments. The error names its `token`.
pub fn id_of(id: &Bound<'_, PyAny>, token: &Bound<'_, PyAny>) -> PyResult<u32> {
    id.extract::<u32>().map_err(|_| match (id.repr(), token.repr()) {
        (Ok(id), Ok(token)) => TokenizerError::new_err(format!(
            "special token {token} has the id {id}; ids must be integers of at least 0"
        )),
        _ => PyTypeError::new_err("special token ids must be integers"),
    })
}

/// Special tokens and their ids, from a mapping of token to id.
pub fn specials(special_tokens: &Bound<'_, PyMapping>) -> PyResult<Vec<(String, u32)>> {
    let mut all = Vec::new();
    for item in special_tokens.items()? {
        let (token, id): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
        all.push((token.extract()?, id_of(&id, &token)?));
    }
    Ok(all)
}

/// Flags of the rules of a special token.
const SINGLE_WORD: u32 = 1;
const LSTRIP: u32 = 2;
const RSTRIP: u32 = 4;
const LATE: u32 = 8;

/// The rules of special tokens, from a mapping of token to flags.
pub fn rules(special_rules: Option<&Bound<'_, PyMapping>>) -> PyResult<Vec<(String, Rules)>> {
    let Some(special_rules) = special_rules else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for item in special_rules.items()? {
        let (token, bits): (String, u32) = item.extract()?;
        let has = |bit| bits & bit != 0;
        let rule = Rules { single_word: has(SINGLE_WORD), lstrip: has(LSTRIP), rstrip: has(RSTRIP), late: has(LATE) };
        all.push((token, rule));
    }
    Ok(all)
}
