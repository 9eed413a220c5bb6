/** Generated texts as a tree: every prompt and every branch keeps its tail. */

import type { Computed } from "./app.svelte";

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

const NO_TOKEN: Alternative = { id: -1, bytes: "", probability: 1, sampled: 1 };

/** What a text was generated with. */
export interface Origin extends Computed {
  modelName: string;
  prompt: string;
  /** The settings at the start, for people. */
  settings: string;
}

export interface BranchNode extends Alternative {
  key: number;
  parent: BranchNode | null;
  children: BranchNode[];
  alternatives: Alternative[];
  isPrompt: boolean;
  /** The child that is shown. */
  shown: BranchNode | null;
  /** Of the node before a prompt. */
  origin: Origin | null;
}

export class Branches {
  private n = 0;
  /** Its children are the starts: one for each prompt that was continued, before its first token. */
  private readonly root: BranchNode = this.node(null, NO_TOKEN, [], true);
  /** Node after which new tokens go. */
  tip: BranchNode = this.root;

  private node(
    parent: BranchNode | null,
    token: Alternative,
    alternatives: Alternative[],
    isPrompt: boolean,
    origin: Origin | null = null,
  ): BranchNode {
    return { ...token, key: this.n++, parent, children: [], alternatives, isPrompt, shown: null, origin };
  }

  get starts(): readonly BranchNode[] {
    return this.root.children;
  }

  /** Start a new text with a prompt, beside those that are there, and show it. */
  begin(origin: Origin, prompt: readonly { id: number; bytes: string; special?: boolean | undefined }[]): void {
    const start = this.node(this.root, NO_TOKEN, [], true, origin);
    this.root.children.push(start);
    this.show(start);
    this.tip = start;
    for (const token of prompt) this.append(this.tip, { ...token, probability: 1, sampled: 1 }, [], true);
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
    this.tip = this.path().at(-1) ?? this.root.shown ?? this.root;
  }

  /** The tokens that are shown, from the start of the prompt. */
  path(): BranchNode[] {
    const nodes: BranchNode[] = [];
    for (let node = this.root.shown?.shown; node; node = node.shown) nodes.push(node);
    return nodes;
  }

  /** What the text with a node was generated with. */
  originOf(node: BranchNode): Origin {
    let each = node;
    while (!each.origin) each = each.parent!;
    return each.origin;
  }

  /** Ids from the start of the prompt up to a node. */
  idsUpTo(node: BranchNode): number[] {
    const ids: number[] = [];
    for (let each = node; each.parent && !each.origin; each = each.parent) ids.push(each.id);
    return ids.reverse();
  }

  /** The last tokens of all branches below a node, in the order of the tree. */
  leaves(below: BranchNode): BranchNode[] {
    const found: BranchNode[] = [];
    const visit = (node: BranchNode): void => {
      // Not recursive in depth: texts are thousands of tokens long.
      let each = node;
      while (each.children.length === 1) each = each.children[0]!;
      if (each.children.length === 0) found.push(each);
      else each.children.forEach(visit);
    };
    visit(below);
    return found;
  }

  /** The first token of a leaf's branch: where it leaves the others of its prompt, or the first one that is new. */
  forkOf(leaf: BranchNode): BranchNode {
    let node = leaf;
    while (node.parent && !node.parent.isPrompt && node.parent.children.length === 1) node = node.parent;
    return node;
  }
}
