/** Generated text as a tree: every branch keeps its tail. */

export interface Alternative {
  id: number;
  bytes: string;
  probability: number;
  sampled: number;
  special?: boolean | undefined;
  /** Position of the first token that it was predicted from. */
  window_start?: number | undefined;
  /** Number of tokens after which the run began that made it. */
  run_start?: number | undefined;
}

export interface BranchNode extends Alternative {
  key: number;
  parent: BranchNode | null;
  children: BranchNode[];
  alternatives: Alternative[];
  isPrompt: boolean;
  /** The child that is shown. */
  shown: BranchNode | null;
}

export class Branches {
  private n = 0;
  readonly root: BranchNode;
  /** Node after which new tokens go. */
  tip: BranchNode;

  constructor(prompt: readonly { id: number; bytes: string; special?: boolean | undefined }[]) {
    this.root = this.node(null, { id: -1, bytes: "", probability: 1, sampled: 1 }, [], true);
    this.tip = this.root;
    for (const token of prompt) this.append(this.tip, { ...token, probability: 1, sampled: 1 }, [], true);
  }

  private node(parent: BranchNode | null, token: Alternative, alternatives: Alternative[], isPrompt: boolean): BranchNode {
    return { ...token, key: this.n++, parent, children: [], alternatives, isPrompt, shown: null };
  }

  /** Add a token after a node, and show it. A token that is there already is shown again. */
  append(after: BranchNode, token: Alternative, alternatives: Alternative[], isPrompt = false): BranchNode {
    let child = after.children.find((each) => each.id === token.id);
    if (!child) {
      child = this.node(after, token, alternatives, isPrompt);
      after.children.push(child);
    } else if (alternatives.length > child.alternatives.length) {
      child.alternatives = alternatives;
    }
    this.show(child);
    this.tip = child;
    return child;
  }

  /** Show the branch that a node is on. */
  show(node: BranchNode): void {
    for (let each: BranchNode = node; each.parent; each = each.parent) each.parent.shown = each;
    this.tip = this.path().at(-1) ?? this.root;
  }

  /** The tokens that are shown, from the start. */
  path(): BranchNode[] {
    const nodes: BranchNode[] = [];
    for (let node = this.root.shown; node; node = node.shown) nodes.push(node);
    return nodes;
  }

  /** Ids up to a node. */
  idsUpTo(node: BranchNode): number[] {
    const ids: number[] = [];
    for (let each: BranchNode | null = node; each?.parent; each = each.parent) ids.push(each.id);
    return ids.reverse();
  }

  /** The last tokens of all branches, in the order of the tree. */
  leaves(): BranchNode[] {
    const found: BranchNode[] = [];
    const visit = (node: BranchNode): void => {
      // Not recursive in depth: texts are thousands of tokens long.
      let each = node;
      while (each.children.length === 1) each = each.children[0]!;
      if (each.children.length === 0) found.push(each);
      else each.children.forEach(visit);
    };
    visit(this.root);
    return found;
  }

  /** The node where a leaf's branch leaves the others. */
  forkOf(leaf: BranchNode): BranchNode {
    let node = leaf;
    while (node.parent && node.parent.children.length === 1) node = node.parent;
    return node;
  }
}
