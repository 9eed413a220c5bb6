//! A list of merges by their bytes, as files have them.

/// Merges in order of rank, each by the bytes of its two parts.
#[derive(Clone, Debug, Default)]
pub(crate) struct MergeList {
    /// The parts of all merges, concatenated.
    bytes: Vec<u8>,
    /// Lengths of the two parts of each merge.
    lengths: Vec<(u32, u32)>,
}

impl MergeList {
    /// Adds a merge whose parts `left` and `right` append to the buffer. Returns false if one of them fails or has 4 GiB; the
    /// list is unusable then.
    #[inline]
    pub(crate) fn push_with(
        &mut self,
        left: impl FnOnce(&mut Vec<u8>) -> bool,
        right: impl FnOnce(&mut Vec<u8>) -> bool,
    ) -> bool {
        let start = self.bytes.len();
        let mut done = left(&mut self.bytes);
        let middle = self.bytes.len();
        done = done && right(&mut self.bytes);
        let (n_left, n_right) = (middle - start, self.bytes.len() - middle);
        let (Ok(n_left), Ok(n_right)) = (u32::try_from(n_left), u32::try_from(n_right)) else { return false };
        self.lengths.push((n_left, n_right));
        done
    }

    /// Number of merges.
    pub(crate) fn len(&self) -> usize {
        self.lengths.len()
    }

    /// The merges in order: the bytes of both parts, and the length of the left one.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], usize)> {
        let mut rest = &self.bytes[..];
        self.lengths.iter().map(move |&(n_left, n_right)| {
            let (joined, others) = rest.split_at(n_left as usize + n_right as usize);
            rest = others;
            (joined, n_left as usize)
        })
    }
}
