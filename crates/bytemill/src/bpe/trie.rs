//! The longest token that a text starts with, by a trie in a double array.

const ROOT: u32 = 0;
/// The parent of a free slot.
const FREE: u32 = u32::MAX;
/// Free slots tried for the children of one node before new ones are appended.
const MAX_TRIES: usize = 32;

#[derive(Clone, Copy)]
struct Node {
    /// The child for byte b is at index `children + b` if that slot names this node as its parent.
    children: u32,
    parent: u32,
}

/// A trie of byte strings. A step is one addition, one load and one comparison.
pub(super) struct Trie {
    nodes: Vec<Node>,
    /// For each node, the value of the longest string that is a prefix of its path.
    longest: Vec<u32>,
}

impl Trie {
    /// A trie of different strings with values; every single byte must be among the strings. `prefix` is called for each string
    /// with its value and that of the longest other string that is a prefix of it.
    pub(super) fn new(strings: Vec<(&[u8], u32)>, mut prefix: impl FnMut(u32, u32)) -> Self {
        let mut strings: Vec<_> = strings.into_iter().map(|(string, value)| (head(string), string, value)).collect();
        strings.sort_unstable();
        let mut slots = Slots::new();
        let mut longest = vec![u32::MAX];
        // Nodes whose children are not placed yet: the strings below each, the length of their common prefix, the node, and the
        // value of the longest string so far.
        let mut waiting = vec![(0..strings.len(), 0, ROOT, u32::MAX)];
        let mut children: Vec<(u8, usize)> = Vec::with_capacity(256);
        while let Some((mut below, depth, node, mut value)) = waiting.pop() {
            let (_, string, own) = strings[below.start];
            if string.len() == depth {
                prefix(own, value);
                value = own;
                below.start += 1;
            }
            longest[node as usize] = value;
            if below.is_empty() {
                continue;
            }
            children.clear();
            let mut at = below.start;
            while at < below.end {
                let byte = strings[at].1[depth];
                children.push((byte, at));
                at += strings[at..below.end].partition_point(|(_, string, _)| string[depth] == byte);
            }
            let base = slots.take(&children, node);
            longest.resize(slots.nodes.len(), u32::MAX);
            let ends = children.iter().skip(1).map(|&(_, start)| start).chain([below.end]);
            for (&(byte, start), end) in children.iter().zip(ends) {
                waiting.push((start..end, depth + 1, base + u32::from(byte), value));
            }
        }
        let mut nodes = slots.nodes;
        // More slots at the end, so that no byte leads outside.
        nodes.resize(nodes.len() + 256, Node { children: 0, parent: FREE });
        Self { nodes, longest }
    }

    /// The value of the longest string that `text` starts with; unspecified for an empty text.
    #[inline]
    pub(super) fn longest(&self, text: &[u8]) -> u32 {
        let mut at = ROOT;
        let mut children = self.nodes[0].children;
        for &byte in text {
            let next = children + u32::from(byte);
            let node = self.nodes[next as usize];
            if node.parent != at {
                break;
            }
            (at, children) = (next, node.children);
        }
        self.longest[at as usize]
    }
}

/// The first eight bytes as a number, which decide most comparisons of the sort.
fn head(string: &[u8]) -> u64 {
    let mut eight = [0; 8];
    let n_bytes = string.len().min(8);
    eight[..n_bytes].copy_from_slice(&string[..n_bytes]);
    u64::from_be_bytes(eight)
}

/// The array while it is filled; free slots are in a ring of links.
struct Slots {
    nodes: Vec<Node>,
    /// Previous and next free slot; the root's slot, which is never free, closes the ring.
    free: Vec<(u32, u32)>,
}

impl Slots {
    fn new() -> Self {
        Self { nodes: vec![Node { children: 0, parent: FREE }], free: vec![(0, 0)] }
    }

    /// Slots the children of a node where all their slots are free; returns the index for byte 0.
    fn take(&mut self, children: &[(u8, usize)], node: u32) -> u32 {
        let (first, last) = (children[0].0, children[children.len() - 1].0);
        let mut slot = self.free[0].1;
        let mut n_tries = 0;
        let base = loop {
            if slot == 0 || n_tries == MAX_TRIES {
                break (self.nodes.len() as u32).max(u32::from(first)) - u32::from(first);
            }
            if let Some(base) = slot.checked_sub(u32::from(first))
                && children.iter().all(|&(byte, _)| {
                    let slot = base + u32::from(byte);
                    slot as usize >= self.nodes.len() || (slot != ROOT && self.nodes[slot as usize].parent == FREE)
                })
            {
                break base;
            }
            slot = self.free[slot as usize].1;
            n_tries += 1;
        };
        while self.nodes.len() <= (base + u32::from(last)) as usize {
            let new = self.nodes.len() as u32;
            let before = self.free[0].0;
            self.free[before as usize].1 = new;
            self.free[0].0 = new;
            self.free.push((before, 0));
            self.nodes.push(Node { children: 0, parent: FREE });
        }
        for &(byte, _) in children {
            let slot = base + u32::from(byte);
            let (before, after) = self.free[slot as usize];
            self.free[before as usize].1 = after;
            self.free[after as usize].0 = before;
            self.nodes[slot as usize].parent = node;
        }
        self.nodes[node as usize].children = base;
        base
    }
}
