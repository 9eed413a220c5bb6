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
    pub(super) fn new(mut strings: Vec<(&[u8], u32)>, mut prefix: impl FnMut(u32, u32)) -> Self {
        strings.sort_unstable();
        let mut slots = Slots { nodes: vec![Node { children: 0, parent: FREE }], first: ROOT as usize + 1 };
        let mut longest = vec![u32::MAX];
        // Nodes whose children are not placed yet: the strings below each, the length of their common prefix, the node, and the
        // value of the longest string so far.
        let mut waiting = vec![(0..strings.len(), 0, ROOT, u32::MAX)];
        let mut children: Vec<(u8, usize)> = Vec::with_capacity(256);
        while let Some((mut below, depth, node, mut value)) = waiting.pop() {
            let (string, own) = strings[below.start];
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
                let byte = strings[at].0[depth];
                children.push((byte, at));
                at += strings[at..below.end].partition_point(|(string, _)| string[depth] == byte);
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

/// The array while it is filled.
struct Slots {
    nodes: Vec<Node>,
    /// Slots before this one are taken, or not worth another try.
    first: usize,
}

impl Slots {
    /// Slots the children of a node where all their slots are free; returns the index for byte 0.
    fn take(&mut self, children: &[(u8, usize)], node: u32) -> u32 {
        let slot_of = |base: usize, byte: u8| base + usize::from(byte);
        let first_byte = usize::from(children[0].0);
        let is_free = |slot: usize| self.nodes.get(slot).is_none_or(|node| slot > 0 && node.parent == FREE);
        let mut free = (self.first..self.nodes.len()).filter(|&slot| is_free(slot)).peekable();
        self.first = free.peek().copied().unwrap_or(self.nodes.len());
        let mut bases = free.take(MAX_TRIES).filter_map(|slot| slot.checked_sub(first_byte));
        let found = bases.find(|&base| children.iter().all(|&(byte, _)| is_free(slot_of(base, byte))));
        let base = found.unwrap_or_else(|| {
            self.first += 1;
            self.nodes.len().max(first_byte) - first_byte
        });
        for &(byte, _) in children {
            let slot = slot_of(base, byte);
            if slot >= self.nodes.len() {
                self.nodes.resize(slot + 1, Node { children: 0, parent: FREE });
            }
            self.nodes[slot].parent = node;
        }
        self.nodes[node as usize].children = base as u32;
        base as u32
    }
}
