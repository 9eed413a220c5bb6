/** What the fragment of the URL holds beside the text: the state of each view, and how it is read and written. */

import type { Schemas } from "./api";
import { AXES, STEP_METRICS, type Axis } from "./runs.svelte";
import { FILTERS, type Filter, type SearchMode, type SortKey } from "./search";

export const VIEWS = [
  { id: "tokens", title: "Tokens" },
  { id: "vocabulary", title: "Vocabulary" },
  { id: "compare", title: "Compare" },
  { id: "generate", title: "Generate" },
  { id: "inside", title: "Inside" },
  { id: "runs", title: "Runs" },
] as const;
export type ViewId = (typeof VIEWS)[number]["id"];

export const MAX_IN_URL = 2000;
export const DEFAULT_PROMPT = "The";

export class LinkedState {
  tokenizer = $state("");
  withSpecial = $state(true);
  /** Selected bytes of the text, which all views show. */
  selection: { start: number; end: number } | null = $state.raw(null);
  model = $state("");
  checkpoint: number | null = $state(null);

  /** Size that the tokenizer is truncated to. */
  vocabSize: number | null = $state(null);

  /** Selected token of the vocabulary. */
  token: number | null = $state(null);
  query = $state("");
  searchMode: SearchMode = $state("text");
  sort: SortKey = $state("id");
  isDescending = $state(false);
  filters: Filter[] = $state.raw([]);
  /** Id of the text whose tokens are counted; none for that of “Tokens”. */
  corpus = $state("");

  compared: string[] = $state.raw([]);
  /** The figures of the comparison were asked for. */
  hasFigures = $state(false);

  mode: "generate" | "chat" | "surprisal" = $state("generate");
  prompt = $state(DEFAULT_PROMPT);
  temperature = $state(0.8);
  topK = $state(0);
  topP = $state(1);
  minP = $state(0);
  repetitionPenalty = $state(1);
  maxTokens = $state(64);
  /** None for a random one. */
  seed: number | null = $state(0);
  /** Text whose surprisal is computed; none for that of “Tokens”. */
  scoredText: string | null = $state(null);
  second = $state("");
  secondCheckpoint: number | null = $state(null);

  /** Text to look inside; none for the prompt of “Generate”. */
  tracedText: string | null = $state(null);
  layer = $state(0);
  head = $state(0);
  /** Position of the selected token; none for the last one. */
  tracedToken: number | null = $state(null);

  runs: string[] = $state.raw([]);
  metric = $state("validation");
  axis: Axis = $state("step");
  smoothing = $state(0);
  isLogX = $state(false);
  isLogY = $state(false);
  onlyDifferent = $state(true);
  study = $state("");

  get sampling(): Schemas["Sampling"] {
    return {
      repetition_penalty: this.repetitionPenalty,
      no_repeat_ngram: 0,
      temperature: this.temperature,
      top_k: this.topK,
      top_p: this.topP,
      min_p: this.minP,
    };
  }
}

/** How values are written in a URL. What cannot be parsed is ignored; numbers are clamped. */
interface Kind<T> {
  parse: (text: string) => T | undefined;
  write: (value: T) => string;
}

const text = (most: number): Kind<string> => ({ parse: (own) => own.slice(0, most), write: (value) => value.slice(0, most) });
const id = text(200);
const flag: Kind<boolean> = {
  parse: (own) => (own === "yes" ? true : own === "no" ? false : undefined),
  write: (value) => (value ? "yes" : "no"),
};
const number = (least: number, most: number): Kind<number> => ({
  parse: (own) => (/^\d{1,15}(\.\d{1,15})?$/.test(own) ? Math.min(most, Math.max(least, Number(own))) : undefined),
  write: String,
});
const integer = (least: number, most: number): Kind<number> => ({
  parse: (own) => (/^\d{1,16}$/.test(own) ? Math.min(most, Math.max(least, Number(own))) : undefined),
  write: String,
});
const index = integer(0, Number.MAX_SAFE_INTEGER);
const oneOf = <T extends string>(values: readonly T[]): Kind<T> => ({
  parse: (own) => values.find((each) => each === own),
  write: String,
});
const list = <T>(kind: Kind<T>, most: number): Kind<T[]> => ({
  parse: (own) =>
    own
      .split(",")
      .filter((part) => part !== "")
      .map(kind.parse)
      .filter((part) => part !== undefined)
      .slice(0, most),
  write: (values) => values.map(kind.write).join(","),
});
const orNone = <T>(kind: Kind<T>, none = "none"): Kind<T | null> => ({
  parse: (own) => (own === none ? null : kind.parse(own)),
  write: (value) => (value === null ? none : kind.write(value)),
});
const span: Kind<LinkedState["selection"]> = {
  parse: (own) => {
    const found = /^(\d{1,9})-(\d{1,9})$/.exec(own);
    return found && Number(found[1]) < Number(found[2]) ? { start: Number(found[1]), end: Number(found[2]) } : undefined;
  },
  write: (value) => (value ? `${value.start}-${value.end}` : ""),
};
const metric: Kind<string> = {
  parse: (own) => (own === "validation" || Object.hasOwn(STEP_METRICS, own) || own.startsWith("class ") ? own.slice(0, 200) : undefined),
  write: String,
};

interface Field {
  /** In the URL. */
  name: string;
  /** Views whose URL holds it; none for all. */
  views: readonly ViewId[];
  /** A change of it by somebody is a step that Back undoes. Other changes are too many: what is typed, and sliders. */
  isStep: boolean;
  /** The value as it is written, or null if it is the one of a new page. */
  write: (state: LinkedState) => string | null;
  /** Take a value from a URL, which is null if it has none. */
  read: (state: LinkedState, value: string | null) => void;
}

const fresh = new LinkedState();

function field<K extends Exclude<keyof LinkedState, "sampling">>(
  name: string,
  key: K,
  kind: Kind<LinkedState[K]>,
  views: readonly ViewId[],
  options: { isStep?: boolean; isKept?: boolean } = {},
): Field {
  const ofNewPage = kind.write(fresh[key]);
  return {
    name,
    views,
    isStep: options.isStep ?? false,
    write: (state) => {
      const own = kind.write(state[key]);
      return own === ofNewPage ? null : own;
    },
    read: (state: LinkedState, value) => {
      const parsed = value === null ? undefined : kind.parse(value);
      if (parsed !== undefined) {
        // An equal value is no change.
        if (kind.write(parsed) !== kind.write(state[key])) state[key] = parsed;
      } else if (!options.isKept && kind.write(state[key]) !== ofNewPage) state[key] = fresh[key];
    },
  };
}

const step = { isStep: true };
/** What a new page chooses by itself stays as it is where a URL does not name it. */
const chosen = { isStep: true, isKept: true };
const models: readonly ViewId[] = ["generate", "inside"];

const FIELDS: readonly Field[] = [
  field("tokenizer", "tokenizer", id, [], chosen),
  field("special", "withSpecial", flag, [], step),
  field("bytes", "selection", span, [], step),
  field("model", "model", id, models, chosen),
  field("checkpoint", "checkpoint", orNone(index), models, step),
  field("tokens.size", "vocabSize", orNone(integer(1, 1e9)), ["tokens"]),
  field("token", "token", orNone(index), ["vocabulary"], step),
  field("vocabulary.query", "query", text(500), ["vocabulary"]),
  field("vocabulary.mode", "searchMode", oneOf(["text", "regex", "hex"]), ["vocabulary"], step),
  field("vocabulary.sort", "sort", oneOf(["id", "length", "count", "uses", "text"]), ["vocabulary"], step),
  field("vocabulary.descending", "isDescending", flag, ["vocabulary"], step),
  field("vocabulary.filters", "filters", list(oneOf(Object.keys(FILTERS) as Filter[]), 6), ["vocabulary"], step),
  field("vocabulary.text", "corpus", id, ["vocabulary"], step),
  field("with", "compared", list(id, 6), ["compare"], chosen),
  field("compare.figures", "hasFigures", flag, ["compare"], step),
  field("generate.mode", "mode", oneOf(["generate", "chat", "surprisal"]), ["generate"], step),
  field("prompt", "prompt", text(MAX_IN_URL), models),
  field("generate.temperature", "temperature", number(0, 2), ["generate"]),
  field("generate.top-k", "topK", integer(0, 100_000), ["generate"]),
  field("generate.top-p", "topP", number(0.05, 1), ["generate"]),
  field("generate.min-p", "minP", number(0, 0.5), ["generate"]),
  field("generate.repetition-penalty", "repetitionPenalty", number(1, 2), ["generate"]),
  field("generate.tokens", "maxTokens", integer(1, 2048), ["generate"]),
  field("generate.seed", "seed", orNone(index, "random"), ["generate"]),
  field("generate.text", "scoredText", orNone(text(MAX_IN_URL), ""), ["generate"]),
  field("generate.second", "second", id, ["generate"], step),
  field("generate.second-checkpoint", "secondCheckpoint", orNone(index), ["generate"], step),
  field("inside.text", "tracedText", orNone(text(MAX_IN_URL), ""), ["inside"]),
  field("inside.layer", "layer", index, ["inside"], step),
  field("inside.head", "head", index, ["inside"], step),
  field("inside.token", "tracedToken", orNone(index), ["inside"], step),
  field("run", "runs", list(id, 50), ["runs"], chosen),
  field("runs.metric", "metric", metric, ["runs"], step),
  field("runs.axis", "axis", oneOf(Object.keys(AXES) as Axis[]), ["runs"], step),
  field("runs.smoothing", "smoothing", number(0, 0.99), ["runs"]),
  field("runs.log-x", "isLogX", flag, ["runs"], step),
  field("runs.log-y", "isLogY", flag, ["runs"], step),
  field("runs.only-different", "onlyDifferent", flag, ["runs"], step),
  field("runs.study", "study", id, ["runs"], step),
];

const isOf = (each: Field, view: ViewId): boolean => each.views.length === 0 || each.views.includes(view);

/** The fields of a view that differ from those of a new page. */
export function writeFields(state: LinkedState, view: ViewId, values: URLSearchParams): void {
  for (const each of FIELDS) {
    const own = isOf(each, view) ? each.write(state) : null;
    if (own !== null) values.set(each.name, own);
  }
}

/** Take the fields of a view from a URL, and those that it names for others. */
export function readFields(state: LinkedState, view: ViewId, values: URLSearchParams): void {
  for (const each of FIELDS) if (isOf(each, view) || values.has(each.name)) each.read(state, values.get(each.name));
}

type LongTexts = Partial<Pick<LinkedState, "prompt" | "scoredText" | "tracedText">>;

/** Texts of a view of which a URL holds the start alone. */
export function longTexts(state: LinkedState, view: ViewId): LongTexts {
  const keys = view === "generate" ? (["prompt", "scoredText"] as const) : view === "inside" ? (["prompt", "tracedText"] as const) : [];
  return Object.fromEntries(keys.filter((key) => (state[key]?.length ?? 0) > MAX_IN_URL).map((key) => [key, state[key]]));
}

/** Differs between two states if there is a step from one to the other. */
export const stepKey = (state: LinkedState, view: ViewId): string =>
  JSON.stringify([view, FIELDS.map((each) => (each.isStep && isOf(each, view) ? each.write(state) : null))]);
