/** What all views share: the text, the selection, the tokenizers and models; kept in the fragment of the URL. */

import { untrack } from "svelte";
import { get, messageOf, watchConnection, type Schemas } from "./api";
import { TextDocument } from "./document.svelte";
import { Entries } from "./entries";
import { LinkedState, longTexts, MAX_IN_URL, readFields, stepKey, VIEWS, writeFields, type ViewId } from "./fields.svelte";
import type { Snippet } from "./snippets";
import { versions } from "./versions.svelte";

export const WELCOME =
  'Tokens are what a language model reads.\n\nIt\'s 2026: naïve café, 日本語, مرحبا, 👩‍💻 and 3.14159.\n\n' +
  'def main(argv):\n    """Indented code."""\n    return [x ** 2 for x in range(10)]\n';

const POLL_MS = 3000;
const NOTICE_MS = 8000;

/** What something was computed with. */
export interface Computed {
  model: string;
  checkpoint: number | null;
  stamp: string;
  /** The newest checkpoint was asked for, whichever it is. */
  isNewest: boolean;
}

class App extends LinkedState {
  view: ViewId = $state("tokens");
  status: Schemas["Status"] | null = $state.raw(null);
  tokenizers: Schemas["Named"][] = $state.raw([]);
  texts: Schemas["Named"][] = $state.raw([]);
  models: Schemas["ModelSummary"][] = $state.raw([]);
  /** The server was started again: what was asked of the old one is asked again. */
  epoch = $state(0);
  isConnected = $state(true);
  /** The server was restarted, and asks for another token. */
  isRestarted = $state(false);
  notice: string | null = $state(null);
  problem: string | null = $state(null);

  document = new TextDocument();
  /** Id of the text if it is one of the server's. */
  source = $state("");
  /** Name of a file that was dropped or opened. */
  fileName = $state("");
  /** The last URL that was followed: of a link, or by Back and Forward. */
  link: { view: ViewId; isBack: boolean } | null = $state.raw(null);
  /** How many texts of the server's are under way. */
  private nOpening = $state(0);

  /** Code that computes what each view shows. */
  snippets: Partial<Record<ViewId, Snippet | null>> = $state({});
  summaries = new Map<string, Promise<Schemas["TokenizerSummary"]>>();
  private readonly entries = new Entries<{ text: string | null; fileName: string; long: Partial<LinkedState> }>();
  private lastStep = "";
  private isByVisitor = false;
  /** Names of all that was ever listed, by id. */
  private names = new Map<string, string>();
  private reloadedNames = new Set<string>();
  private noticeTimer: ReturnType<typeof setTimeout> | undefined;

  async start(): Promise<void> {
    watchConnection((isRestarted) => {
      this.isRestarted = isRestarted;
      if (!this.isConnected) return;
      this.isConnected = false;
      void this.reconnect();
    });
    versions.onChange = (tokenizer) => this.sayReloaded(this.nameOf(tokenizer));
    this.readUrl(true);
    window.addEventListener("popstate", () => this.readUrl(false));
    try {
      await this.refresh();
    } catch (error) {
      this.problem = messageOf(error);
      return;
    }
    this.settle();
    setInterval(() => void this.poll(), POLL_MS);
    document.addEventListener("visibilitychange", () => void this.poll());
    if (this.source) {
      try {
        await this.openSource(this.source, true);
      } catch (error) {
        this.type(WELCOME);
        this.problem = messageOf(error);
      }
    }
  }

  private firstTokenizer(): string {
    const named = this.tokenizers.find((each) => each.origin === "named");
    return (named ?? this.tokenizers[0])?.id ?? "";
  }

  /** Read the lists. What was chosen and is not there any more stays chosen: it may come back. */
  async refresh(): Promise<void> {
    // First the status: the lists are as new as it is, or newer.
    const status = await get<Schemas["Status"]>("/status");
    const [sources, models] = await Promise.all([get<Schemas["SourceList"]>("/sources"), get<Schemas["ModelList"]>("/models")]);
    this.status = status;
    this.tokenizers = sources.tokenizers;
    this.texts = sources.texts;
    this.models = models.models;
    for (const each of [...this.tokenizers, ...this.texts, ...this.models]) this.names.set(each.id, each.name);
    for (const { id, stamp } of this.tokenizers) {
      if (stamp !== null && versions.stamp(id) !== undefined) versions.note(id, stamp);
    }
    this.model ||= this.models[0]?.id ?? "";
    this.completeCompared();
    versions.retry();
    this.document.retry();
    if (await this.document.follow(this.texts)) this.sayReloaded(this.nameOf(this.source));
  }

  private completeCompared(): void {
    if (this.compared.length < 2) this.compared = this.tokenizers.slice(0, 2).map((each) => each.id);
  }

  /** Read the lists again if the server says that they have changed. */
  private async poll(): Promise<void> {
    if (document.hidden || !this.isConnected || !this.status) return;
    try {
      const status = await get<Schemas["Status"]>("/status");
      if (status.library !== this.status.library) await this.refresh();
    } catch {
      // The next one may succeed.
    }
  }

  /** Show a message for a while. */
  private say(message: string): void {
    this.notice = message;
    clearTimeout(this.noticeTimer);
    this.noticeTimer = setTimeout(() => {
      this.notice = null;
      this.reloadedNames.clear();
    }, NOTICE_MS);
  }

  /** Say that what was computed with a model is now computed with another version or checkpoint of it. */
  sayRecomputed(before: Computed, now: Computed): void {
    if (before.stamp !== now.stamp || before.checkpoint !== now.checkpoint) this.sayReloaded(this.nameOf(now.model));
  }

  /** Say that something was loaded again. */
  sayReloaded(name: string): void {
    this.reloadedNames.add(name);
    this.say(`${[...this.reloadedNames].join(", ")} changed on disk, reloaded.`);
  }

  /** What became of the model that something was computed with; null if it is as it was. */
  changeOf(own: Computed): "changed" | "gone" | "newer" | null {
    const found = this.models.find((each) => each.id === own.model);
    if (!found || (own.checkpoint !== null && !found.checkpoints.includes(own.checkpoint))) return "gone";
    const now = found.stamps[own.checkpoint ?? ""];
    if (now !== undefined && now !== own.stamp) return "changed";
    return own.isNewest && own.checkpoint !== null && found.checkpoints.at(-1) !== own.checkpoint ? "newer" : null;
  }

  /** Where an answer of a model is from. If the lists say otherwise, they are read again. */
  computed(model: string, checkpoint: number | null, answer: Schemas["PromptTokens" | "InsideResult" | "SurprisalResult"]): Computed {
    const own = { model, checkpoint: answer.checkpoint, stamp: answer.stamp, isNewest: checkpoint === null };
    const change = this.changeOf(own);
    // Not for a newer checkpoint: if that is damaged, the answer is from the one before, however often it is asked for.
    if (change === "changed" || change === "gone") void this.refresh().catch(() => {});
    return own;
  }

  private async reconnect(): Promise<void> {
    const before = this.status?.started;
    for (;;) {
      await new Promise((resolve) => {
        // Nobody but the user can give this page the new token: they come back from the tab where it was opened.
        if (this.isRestarted) window.addEventListener("focus", resolve, { once: true });
        else setTimeout(resolve, 1000);
      });
      try {
        const status = await get<Schemas["Status"]>("/status");
        await this.refresh();
        this.isConnected = true;
        this.isRestarted = false;
        if (status.started !== before) {
          this.document.reset();
          this.say("Connected again. The server was started anew, so work that was under way has ended.");
        } else {
          this.document.retry();
          this.say("Connected again.");
        }
        this.epoch++;
        return;
      } catch {
        // Not yet.
      }
    }
  }

  /** Replace what is named but was never there. */
  private settle(): void {
    if (!this.names.has(this.tokenizer)) this.tokenizer = this.firstTokenizer();
    if (!this.names.has(this.model)) this.model = this.models[0]?.id ?? "";
    if (!this.compared.every((id) => this.names.has(id))) this.compared = this.compared.filter((id) => this.names.has(id));
    this.completeCompared();
  }

  /** Open a text of the server's. A URL names the selection too, and is no step. */
  async openSource(id: string, isOfUrl = false): Promise<void> {
    this.nOpening++;
    try {
      if (!(await this.document.open(id))) return;
      this.source = id;
      this.fileName = "";
      if (isOfUrl) return;
      this.selection = null;
      this.step();
    } finally {
      this.nOpening--;
    }
  }

  type(text: string): void {
    this.source = this.fileName = "";
    this.document.write(text);
  }

  /** Reactive: an effect that calls it runs again when the tokenizer has changed. */
  summary(id: string): Promise<Schemas["TokenizerSummary"]> {
    const key = versions.key(id);
    let found = this.summaries.get(key);
    if (!found) {
      found = get<Schemas["TokenizerSummary"]>(`/tokenizers/${id}`).then((summary) => {
        versions.note(id, summary.stamp);
        return summary;
      });
      this.summaries.set(key, found);
      found.catch(() => this.summaries.delete(key));
    }
    return found;
  }

  /** How Python and the command line name a model, or one of its checkpoints; null if there is none. */
  argument(model: string, checkpoint: number | null): string | null {
    const path = this.models.find((each) => each.id === model)?.argument;
    if (path === undefined) return null;
    return checkpoint === null ? path : `${path}/checkpoints/step_${String(checkpoint).padStart(8, "0")}`;
  }

  nameOf(id: string): string {
    return this.names.get(id) ?? id;
  }

  chooseTokenizer(id: string): void {
    this.tokenizer = id;
    this.vocabSize = null;
  }

  /** What changes now is done by the visitor, so that Back undoes it; or by the page itself, which is no step. */
  step(isByVisitor = true): void {
    this.isByVisitor = isByVisitor;
    if (isByVisitor) setTimeout(() => (this.isByVisitor = false));
  }

  /** The fragment that reopens what is shown now. */
  fragment(): string {
    const values = new URLSearchParams();
    writeFields(this, this.view, values);
    if (this.source) values.set("source", this.source);
    else if (this.document.text !== WELCOME && !this.isTextKept()) values.set("text", this.document.text);
    return `#${this.view}?${values}`;
  }

  /** The text is in no URL: it is too long, or from a file. */
  private isTextKept(): boolean {
    return !this.source && (this.fileName !== "" || this.document.text.length > MAX_IN_URL);
  }

  /** Bring the URL up to date with what is shown. */
  writeUrl(): void {
    const fragment = this.fragment();
    const key = `${stepKey(this, this.view)} ${this.source} ${this.fileName}`;
    const text = this.isTextKept() ? this.document.text : null;
    if (this.nOpening) return;
    const kept = { text, fileName: this.fileName, long: longTexts(this, this.view) };
    this.entries.note(fragment, kept, this.isByVisitor && key !== this.lastStep);
    this.lastStep = key;
  }

  private readUrl(isFirst: boolean): void {
    const { isOwn, kept } = this.entries.follow();
    this.isByVisitor = false;
    const [view = "", query = ""] = location.hash.slice(1).split("?", 2);
    const values = new URLSearchParams(query);
    this.view = VIEWS.find((each) => each.id === view)?.id ?? this.view;
    readFields(this, this.view, values);
    Object.assign(this, kept?.long);
    if (!isFirst) this.settle();
    this.link = { view: this.view, isBack: isOwn && !isFirst };
    const source = values.get("source") ?? "";
    if (source) {
      if (isFirst) this.source = source;
      else if (source !== this.source || this.nOpening)
        void this.openSource(source, true).catch((error: unknown) => (this.problem = messageOf(error)));
      return;
    }
    const text = values.get("text") ?? kept?.text ?? (isOwn || isFirst ? WELCOME : null);
    if (text === null) return;
    if (text !== this.document.text || this.source || this.nOpening) this.type(text);
    this.fileName = kept?.fileName ?? "";
  }
}

export const app = new App();

/** Call whenever what a component shows comes into sight, to redo what has changed while it was hidden, and
 *  whenever a URL is followed to it. */
export function whenShown(isVisible: () => boolean, call: (isLink: boolean) => void): void {
  let seen: App["link"] = null;
  $effect(() => {
    const isLink = app.link !== seen && app.link?.view === app.view && !app.link.isBack;
    seen = app.link;
    if (isVisible()) untrack(() => call(isLink));
  });
}
