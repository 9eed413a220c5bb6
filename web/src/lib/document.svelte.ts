/** A text that the server knows too, and its ids, of which only changes are sent. */

import { ApiError, messageOf, OfflineError, patch, post, uint32, type Schemas } from "./api";
import { editBetween } from "./edits";

export interface ViewSpec {
  tokenizer: string;
  special: boolean;
  vocab_size: number | null;
}

const keyOf = (view: ViewSpec): string => `${view.tokenizer} ${view.special} ${view.vocab_size}`;

/** How a text is encoded, and its ids. */
export class LiveView {
  /** Ids of the last answer; those of an older text until the next one. */
  ids = $state.raw(new Uint32Array());
  /** Changes with each answer. */
  version = $state(0);
  /** What `ids` are the ids of. */
  shown: ViewSpec | null = $state.raw(null);
  wanted: ViewSpec;

  constructor(spec: ViewSpec) {
    this.wanted = spec;
  }

  set(ids: Uint32Array<ArrayBuffer>, spec: ViewSpec): void {
    this.ids = ids;
    this.shown = spec;
    this.version++;
  }
}

export class TextDocument {
  /** The text, as it is typed. */
  text = $state.raw("");
  nBytes = $state(0);
  error: string | null = $state(null);
  isBusy = $state(false);
  private sent: string | null = null;
  private id: string | null = null;
  private serverVersion = 0;
  private views: LiveView[] = [];
  private isSending = false;
  private isReset = false;

  /** Set the text, and send what changed. */
  write(text: string): void {
    this.text = text.isWellFormed() ? text : text.toWellFormed();
    void this.flush();
  }

  /** Open a text that the server has. */
  async open(source: string): Promise<string> {
    const opened = await post<Schemas["TextOpened"]>("/texts", { source });
    this.adopt(opened, opened.text ?? "");
    this.text = this.sent!;
    await this.flush();
    return opened.name ?? "";
  }

  /** The id of the text on the server, once it is there. */
  async serverId(): Promise<string> {
    await this.flush();
    if (this.id === null) throw new OfflineError("the text is not on the server yet");
    return this.id;
  }

  watch(spec: ViewSpec): LiveView {
    const view = new LiveView(spec);
    this.views.push(view);
    void this.flush();
    return view;
  }

  unwatch(view: LiveView): void {
    this.views = this.views.filter((each) => each !== view);
  }

  change(view: LiveView, spec: ViewSpec): void {
    if (keyOf(view.wanted) === keyOf(spec)) return;
    view.wanted = spec;
    void this.flush();
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
      this.error = null;
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
        this.adopt(await post<Schemas["TextOpened"]>("/texts", { text }), text);
        return true;
      }
      if (text !== this.sent) {
        await this.sendEdit(text);
        return true;
      }
      const stale = this.views.find((view) => view.shown === null || keyOf(view.shown) !== keyOf(view.wanted));
      if (!stale) return false;
      const spec = stale.wanted;
      const found = await post<Schemas["Ids"]>(`/texts/${this.id}/ids`, spec);
      if (found.version === this.serverVersion) stale.set(uint32(found.ids), spec);
      return true;
    } catch (error) {
      // Forgotten by the server, or edited by another page: start with a new text.
      if (error instanceof ApiError && (error.status === 404 || error.status === 409) && this.id !== null) {
        this.id = null;
        return true;
      }
      throw error;
    }
  }

  private async sendEdit(text: string): Promise<void> {
    const views = this.views.filter((view) => view.shown !== null && keyOf(view.shown) === keyOf(view.wanted));
    const specs = views.map((view) => view.wanted);
    const answer = await patch<Schemas["TextEdited"]>(`/texts/${this.id}`, {
      version: this.serverVersion,
      edits: [editBetween(this.sent!, text)],
      views: specs,
    });
    this.serverVersion = answer.version;
    this.nBytes = answer.n_bytes;
    this.sent = text;
    for (const view of this.views) if (!views.includes(view)) view.shown = null;
    answer.views.forEach((change, i) => {
      const view = views[i]!;
      const isWhole = change.n_tokens !== view.ids.length - change.n_removed + uint32(change.ids).length;
      if (isWhole) view.shown = null;
      else view.set(spliced(view.ids, change.start, change.n_removed, uint32(change.ids)), specs[i]!);
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
