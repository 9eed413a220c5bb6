/** A text that the server knows too, and its ids, of which only changes are sent. */

import { untrack } from "svelte";
import { ApiError, messageOf, OfflineError, patch, post, uint32, type Schemas } from "./api";
import { editBetween } from "./edits";
import { versions } from "./versions.svelte";

export interface ViewSpec {
  tokenizer: string;
  special: boolean;
  vocab_size: number | null;
}

const keyOf = (view: ViewSpec | null): string => (view ? `${view.tokenizer} ${view.special} ${view.vocab_size}` : "");

/** Whether a tokenizer is missing, or cannot be opened: no fault of the text. */
const isOfTokenizer = (error: unknown): boolean => error instanceof ApiError && (error.status === 404 || error.status === 422);

/** How a text is encoded, and its ids. */
export class LiveView {
  /** Ids of the last answer; those of an older text until the next one. */
  ids = $state.raw(new Uint32Array());
  /** Changes with each answer. */
  version = $state(0);
  /** What `ids` are the ids of, and the stamp of the tokenizer that made them. */
  shown: (ViewSpec & { stamp: string }) | null = $state.raw(null);
  /** Why there are no ids. */
  problem: string | null = null;
  /** None while nobody looks: nothing is computed then. */
  wanted: ViewSpec | null;

  constructor(spec: ViewSpec | null) {
    this.wanted = spec;
  }

  set(ids: Uint32Array<ArrayBuffer>, spec: ViewSpec, stamp: string): void {
    versions.note(spec.tokenizer, stamp);
    this.ids = ids;
    this.shown = { ...spec, stamp };
    this.version++;
  }

  /** Its ids are those that are wanted. */
  get isCurrent(): boolean {
    const { shown, wanted } = this;
    return shown !== null && wanted !== null && keyOf(shown) === keyOf(wanted) && shown.stamp === versions.stamp(wanted.tokenizer);
  }
}

export class TextDocument {
  /** The text, as it is typed. */
  text = $state.raw("");
  nBytes = $state(0);
  error: string | null = $state(null);
  isBusy = $state(false);
  /** The server's text that this is, until it is edited. */
  private source: { id: string; stamp: string | null } | null = null;
  private sent: string | null = null;
  private id: string | null = null;
  private serverVersion = 0;
  private views: LiveView[] = [];
  private isSending = false;
  private isReset = false;
  /** Counts what set the text, so that a text that comes late replaces none that is newer. */
  private nSet = 0;

  /** Set the text, and send what changed. */
  write(text: string): void {
    this.nSet++;
    this.source = null;
    this.text = text.isWellFormed() ? text : text.toWellFormed();
    void this.flush();
  }

  /** Open a text that the server has. Return whether it is shown: not if another text came meanwhile. */
  async open(source: string): Promise<boolean> {
    const n = ++this.nSet;
    const opened = await post<Schemas["TextOpened"]>("/texts", { source });
    if (n !== this.nSet) return false;
    await this.show(source, opened);
    return n === this.nSet;
  }

  private async show(source: string, opened: Schemas["TextOpened"]): Promise<void> {
    this.adopt(opened, opened.text ?? "");
    this.text = this.sent!;
    this.source = { id: source, stamp: opened.stamp ?? null };
    await this.flush();
  }

  /** Open the server's text again if its file has changed, and return whether it was. */
  async follow(texts: readonly Schemas["Named"][]): Promise<boolean> {
    const own = this.source;
    const now = texts.find((each) => each.id === own?.id)?.stamp ?? null;
    if (!own || now === null || now === own.stamp) return false;
    try {
      const opened = await post<Schemas["TextOpened"]>("/texts", { source: own.id });
      if (this.source !== own) return false; // edited meanwhile
      await this.show(own.id, opened);
      return true;
    } catch (error) {
      this.error = messageOf(error);
      return false;
    }
  }

  /** Ask again for the ids that there were none of: the tokenizers that are there have changed. */
  retry(): void {
    for (const view of this.views) view.problem = null;
    void this.flush();
  }

  /** The id of the text on the server, once it is there. */
  async serverId(): Promise<string> {
    await this.flush();
    if (this.id === null) throw new OfflineError("the text is not on the server yet");
    return this.id;
  }

  watch(spec: ViewSpec | null): LiveView {
    const view = new LiveView(spec);
    this.views.push(view);
    if (spec) void this.flush();
    return view;
  }

  unwatch(view: LiveView): void {
    this.views = this.views.filter((each) => each !== view);
  }

  /** Encode in another way; none while the view is hidden. Reactive: an effect that calls it runs again when the
   *  tokenizer has changed. */
  change(view: LiveView, spec: ViewSpec | null): void {
    if (spec) void versions.key(spec.tokenizer);
    untrack(() => {
      view.wanted = spec;
      view.problem = null;
      if (spec && !view.isCurrent) void this.flush();
    });
  }

  /** The server forgot everything. */
  reset(): void {
    this.isReset = true;
    void this.flush();
  }

  private adopt(opened: Schemas["TextOpened"], text: string): void {
    this.id = opened.id;
    this.serverVersion = opened.version;
    this.nBytes = opened.n_bytes;
    this.sent = text;
    for (const view of this.views) view.shown = null;
  }

  /** Send until the server has the text and all views are up to date; one request at a time. */
  private async flush(): Promise<void> {
    if (this.isSending) return;
    this.isSending = this.isBusy = true;
    try {
      for (let tries = 0; tries < 100; tries++) {
        if (this.isReset) {
          this.isReset = false;
          this.id = null;
        }
        if (!(await this.step())) break;
      }
      this.error = this.views.find((view) => view.problem)?.problem ?? null;
    } catch (error) {
      if (!(error instanceof OfflineError)) this.error = messageOf(error);
    } finally {
      this.isSending = this.isBusy = false;
    }
  }

  private async step(): Promise<boolean> {
    const text = this.text;
    try {
      if (this.id === null) {
        const opened = await post<Schemas["TextOpened"]>("/texts", { text });
        if (this.id === null) this.adopt(opened, text); // else another text was opened meanwhile
        return true;
      }
      if (text !== this.sent) {
        await this.sendEdit(text);
        return true;
      }
      const stale = this.views.find((view) => view.wanted && !view.isCurrent && view.problem === null);
      if (stale) await this.askIds(stale);
      return stale !== undefined;
    } catch (error) {
      // Forgotten by the server, or edited by another page: start with a new text.
      if (error instanceof ApiError && (error.status === 410 || error.status === 409) && this.id !== null) {
        this.id = null;
        return true;
      }
      throw error;
    }
  }

  private async askIds(view: LiveView): Promise<void> {
    const [id, spec] = [this.id, view.wanted!];
    try {
      const found = await post<Schemas["Ids"]>(`/texts/${id}/ids`, spec);
      if (id === this.id && found.version === this.serverVersion) view.set(uint32(found.ids), spec, found.stamp);
    } catch (error) {
      if (!isOfTokenizer(error)) throw error;
      view.shown = null;
      if (view.wanted === spec) view.problem = messageOf(error);
    }
  }

  private async sendEdit(text: string): Promise<void> {
    const views = this.views.filter((view) => view.isCurrent);
    const specs = views.map((view) => view.wanted!);
    const id = this.id;
    let answer: Schemas["TextEdited"];
    try {
      answer = await patch<Schemas["TextEdited"]>(`/texts/${id}`, {
        version: this.serverVersion,
        edits: [editBetween(this.sent!, text)],
        views: specs,
      });
    } catch (error) {
      if (!isOfTokenizer(error) || views.length === 0) throw error;
      for (const view of views) view.shown = null; // the edit goes alone, and each view is asked for afterwards
      return;
    }
    if (id !== this.id) return; // another text was opened meanwhile
    this.serverVersion = answer.version;
    this.nBytes = answer.n_bytes;
    this.sent = text;
    for (const view of this.views) if (!views.includes(view)) view.shown = null;
    answer.views.forEach((change, i) => {
      const view = views[i]!;
      const isWhole = change.n_tokens !== view.ids.length - change.n_removed + uint32(change.ids).length;
      if (isWhole || change.stamp !== view.shown?.stamp) view.shown = null;
      else view.set(spliced(view.ids, change.start, change.n_removed, uint32(change.ids)), specs[i]!, change.stamp);
    });
  }
}

export function spliced(ids: Uint32Array, start: number, nRemoved: number, added: Uint32Array): Uint32Array<ArrayBuffer> {
  const result = new Uint32Array(ids.length - nRemoved + added.length);
  result.set(ids.subarray(0, start));
  result.set(added, start);
  result.set(ids.subarray(start + nRemoved), start + added.length);
  return result;
}
