/** What all views share: the text, the selection, the tokenizers and models; kept in the fragment of the URL. */

import { get, messageOf, watchConnection, type Schemas } from "./api";
import { TextDocument } from "./document.svelte";
import type { Snippet } from "./snippets";
import { versions } from "./versions.svelte";

export const VIEWS = [
  { id: "tokens", title: "Tokens" },
  { id: "vocabulary", title: "Vocabulary" },
  { id: "compare", title: "Compare" },
  { id: "generate", title: "Generate" },
  { id: "inside", title: "Inside" },
  { id: "runs", title: "Runs" },
] as const;
export type ViewId = (typeof VIEWS)[number]["id"];

export const WELCOME =
  'Tokens are what a language model reads.\n\nIt\'s 2026: naïve café, 日本語, مرحبا, 👩‍💻 and 3.14159.\n\n' +
  'def main(argv):\n    """Indented code."""\n    return [x ** 2 for x in range(10)]\n';
const MAX_IN_URL = 2000;
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

class App {
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

  tokenizer = $state("");
  withSpecial = $state(true);
  document = new TextDocument();
  /** Id of the text if it is one of the server's. */
  source = $state("");
  /** Name of a file that was dropped or opened. */
  fileName = $state("");
  /** Selected bytes of the text, which all views show. */
  selection: { start: number; end: number } | null = $state.raw(null);
  /** Selected token of the vocabulary. */
  token: number | null = $state(null);
  compared: string[] = $state.raw([]);
  model = $state("");
  checkpoint: number | null = $state(null);
  prompt = $state("");
  run = $state("");
  /** Values that one view keeps in the URL. */
  extra: Record<string, string> = $state({});

  /** Code that computes what each view shows. */
  snippets: Partial<Record<ViewId, Snippet | null>> = $state({});
  summaries = new Map<string, Promise<Schemas["TokenizerSummary"]>>();
  /** Names of all that was ever listed, by id. */
  private names = new Map<string, string>();
  private reloadedNames = new Set<string>();
  private noticeTimer: ReturnType<typeof setTimeout> | undefined;
  /** Fragment of the URL when it was last read or written here. */
  private knownHash = "";

  async start(): Promise<void> {
    watchConnection((isRestarted) => {
      this.isRestarted = isRestarted;
      if (!this.isConnected) return;
      this.isConnected = false;
      void this.reconnect();
    });
    versions.onChange = (tokenizer) => this.sayReloaded(this.nameOf(tokenizer));
    this.readUrl(true);
    window.addEventListener("hashchange", () => this.readUrl(false));
    try {
      await this.refresh();
    } catch (error) {
      this.problem = messageOf(error);
      return;
    }
    if (!this.tokenizers.some((each) => each.id === this.tokenizer)) this.tokenizer = this.firstTokenizer();
    if (!this.models.some((each) => each.id === this.model)) this.model = this.models[0]?.id ?? "";
    this.compared = this.compared.filter((id) => this.tokenizers.some((each) => each.id === id));
    this.completeCompared();
    setInterval(() => void this.poll(), POLL_MS);
    document.addEventListener("visibilitychange", () => void this.poll());
    if (this.source) {
      try {
        await this.openSource(this.source, true);
      } catch (error) {
        this.source = "";
        this.problem = messageOf(error);
      }
    }
    if (!this.document.text && !this.source) this.document.write(WELCOME);
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

  async openSource(id: string, keepSelection = false): Promise<void> {
    await this.document.open(id);
    this.source = id;
    this.fileName = "";
    if (!keepSelection) this.selection = null;
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

  /** The fragment that reopens what is shown now. */
  fragment(): string {
    const values = new URLSearchParams();
    const set = (key: string, value: string | number | null | undefined): void => {
      if (value !== null && value !== undefined && value !== "") values.set(key, String(value));
    };
    set("tokenizer", this.tokenizer);
    if (!this.withSpecial) set("special", "no");
    if (this.source) set("source", this.source);
    else if (!this.fileName && this.document.text !== WELCOME && this.document.text.length <= MAX_IN_URL)
      set("text", this.document.text);
    if (this.selection) set("bytes", `${this.selection.start}-${this.selection.end}`);
    if (this.view === "vocabulary") set("token", this.token);
    if (this.view === "compare") set("with", this.compared.join(","));
    if (this.view === "generate" || this.view === "inside") {
      set("model", this.model);
      set("checkpoint", this.checkpoint);
      set("prompt", this.prompt.slice(0, MAX_IN_URL));
    }
    if (this.view === "runs") set("run", this.run);
    for (const [key, value] of Object.entries(this.extra)) if (key.startsWith(`${this.view}.`)) set(key, value);
    return `#${this.view}?${values}`;
  }

  /** Writes the fragment, unless somebody else has just changed it: that one is read when its event comes. */
  writeUrl(): void {
    if (location.hash !== this.knownHash) return;
    history.replaceState(null, "", this.fragment());
    this.knownHash = location.hash;
  }

  private readUrl(isFirst: boolean): void {
    this.knownHash = location.hash;
    const [view = "", query = ""] = location.hash.slice(1).split("?", 2);
    if (!isFirst && location.hash === this.fragment()) return;
    if (VIEWS.some((each) => each.id === view)) this.view = view as ViewId;
    const values = new URLSearchParams(query);
    const number = (key: string): number | null => {
      const value = values.get(key);
      return value !== null && /^\d{1,15}$/.test(value) ? Number(value) : null;
    };
    this.tokenizer = values.get("tokenizer") ?? this.tokenizer;
    this.withSpecial = values.get("special") !== "no";
    const span = /^(\d{1,9})-(\d{1,9})$/.exec(values.get("bytes") ?? "");
    if (span || isFirst) this.selection = span ? { start: Number(span[1]), end: Number(span[2]) } : null;
    this.token = number("token") ?? this.token;
    if (values.has("with")) this.compared = values.get("with")!.split(",").slice(0, 6);
    this.model = values.get("model") ?? this.model;
    this.checkpoint = number("checkpoint");
    this.prompt = values.get("prompt") ?? this.prompt;
    this.run = values.get("run") ?? this.run;
    for (const [key, value] of values) if (key.includes(".")) this.extra[key] = value;
    const source = values.get("source") ?? "";
    if (isFirst) this.source = source;
    else if (source && source !== this.source)
      void this.openSource(source, true).catch((error: unknown) => (this.problem = messageOf(error)));
    const text = values.get("text");
    if (text !== null && !source) this.type(text);
  }
}

export const app = new App();
