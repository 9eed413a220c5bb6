/** Code that computes what a view shows: as Python, and as a command of a POSIX shell. */

import type { Schemas } from "./api";

/** Texts are long, so that code is written when it is copied. */
export interface Snippet {
  python: (() => string) | null;
  command: (() => string) | null;
  /** Why one of them is missing. */
  missing?: string;
}

/** A string as a literal of Python. */
export function pythonString(text: string): string {
  const escaped = JSON.stringify(text).replace(/[\u007f-\uffff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
  // Python reads two \u escapes of a pair as two characters.
  return escaped.replace(/\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})/gi, (_, high: string, low: string) => {
    const code = ((parseInt(high, 16) & 0x3ff) << 10) + (parseInt(low, 16) & 0x3ff) + 0x10000;
    return `\\U${code.toString(16).padStart(8, "0")}`;
  });
}

/** A string as a word of a POSIX shell. */
export const shellWord = (text: string): string =>
  /^[\w@%+=:,./-]+$/.test(text) && !text.startsWith("-") ? text : `'${text.replaceAll("'", "'\\''")}'`;

const MAX_ARGUMENT = 10_000;

/** A command that prints a text. No argument of a process has a NUL, so that it is escaped. */
const printed = (text: string): string =>
  text.includes("\0")
    ? `printf %b ${shellWord(text.replaceAll("\\", "\\\\").replaceAll("\0", "\\0000"))}`
    : `printf %s ${shellWord(text)}`;

/** A command with a text as its last argument, or on standard input where an argument cannot hold it. */
const withText = (command: string, text: string): string =>
  text === "-" || text.length > MAX_ARGUMENT || text.includes("\0")
    ? `${printed(text)} | ${command} -`
    : `${command} -- ${shellWord(text)}`;

const special = (isRecognized: boolean): string => (isRecognized ? "" : ', allowed_special="none"');

interface TokensState {
  tokenizer: string;
  vocabSize: number | null;
  special: boolean;
  text: string;
  /** The rank up to which merges are replayed, -1 for none; null if there is no replay. */
  rank: number | null;
}

export function tokensSnippet({ tokenizer, vocabSize, special: isSpecial, text, rank }: TokensState): Snippet | null {
  if (!text) return null;
  const opened = `tok = open_tokenizer(${pythonString(tokenizer)})${vocabSize === null ? "" : `.truncate(${vocabSize})`}\n`;
  const load = "from bytemill.tokenizer import open_tokenizer\n\n";
  if (rank !== null) {
    return {
      python: () =>
        `${load}${opened}rank = ${rank}  # of the last merge\nn_tokens = 0\n` +
        `for part in tok.explain(${pythonString(text)}${special(isSpecial)}):\n` +
        `    is_whole = part.special or (not part.steps and len(part.ids) == 1)\n` +
        `    n_tokens += 1 if is_whole else len(b"".join(part.tokens)) - sum(step.rank <= rank for step in part.steps)\n` +
        `print(n_tokens)\n`,
      command: null,
      missing: "No command stops in the middle of the merges",
    };
  }
  return {
    python: () =>
      `from bytemill.analysis.inspection import inspect\n${load}${opened}` +
      `found = inspect(tok, ${pythonString(text)}${special(isSpecial)})\n` +
      `print(found.n_tokens, found.n_bytes, found.metrics["bytes_per_token"], len({token.id for token in found.tokens}), len(tok))\n` +
      `for token in found.tokens:\n    print(token.id, token.bytes)\n`,
    command: () =>
      withText(
        `bytemill tokenizer inspect ${shellWord(tokenizer)}` +
          (vocabSize === null ? "" : ` --vocab-size ${vocabSize}`) +
          (isSpecial ? "" : " --allowed-special none"),
        text,
      ),
  };
}

interface VocabularyState {
  tokenizer: string;
  token: number | null;
  query: string;
  mode: "text" | "regex" | "hex";
  hasFilters: boolean;
  special: boolean;
  /** The text whose tokens are counted. */
  text: string;
}

export function vocabularySnippet(state: VocabularyState): Snippet {
  const { tokenizer, token, query, mode, hasFilters } = state;
  const opened =
    `from bytemill.tokenizer import open_tokenizer\n\n` + `tok = open_tokenizer(${pythonString(tokenizer)})\n`;
  if (token !== null) {
    return {
      python: () => `${opened}print(tok.token(${token}))\nprint(tok.encode(${pythonString(state.text)}${special(state.special)}).count(${token}))\n`,
      command: () => `bytemill tokenizer show ${shellWord(tokenizer)} --token ${token}`,
    };
  }
  if (!query && !hasFilters) {
    return { python: () => `${opened}print(len(tok))\n`, command: () => `bytemill tokenizer show ${shellWord(tokenizer)}` };
  }
  if (hasFilters || mode === "regex")
    return { python: null, command: null, missing: "Filters and regular expressions are those of the page: choose a token to copy" };
  const condition =
    mode === "hex"
      ? `bytes.fromhex(${pythonString(query.replace(/[\s,]|0x/g, ""))}) in token`
      : `${pythonString(query)} in token.decode(errors="replace")`;
  return {
    python: () => `${opened}found = [i for i, token in tok.vocab.items() if ${condition}]\nprint(len(found), found)\n`,
    command: null,
    missing: "No command searches a vocabulary",
  };
}

interface ComparisonState {
  tokenizers: string[];
  special: boolean;
  text: string;
}

export function comparisonSnippet({ tokenizers, special: isSpecial, text }: ComparisonState): Snippet | null {
  if (tokenizers.length < 2 || !/[^\n]/.test(text)) return null;
  return {
    python: () =>
      `import bytemill\nfrom bytemill.datasets import DECLARATION\nfrom bytemill.tokenizer import open_tokenizer\n\n` +
      `text = ${pythonString(text)}\n` +
      `tokenizers = [${tokenizers.map(pythonString).join(", ")}]\n` +
      `for name in tokenizers:\n    tok = open_tokenizer(name)\n    print(name, len(tok), len(tok.encode(text${special(isSpecial)})))\n` +
      `lines = [line.removesuffix("\\r") for line in text.split("\\n")]\n` +
      `corpus = bytemill.Corpus.from_texts([line for line in lines if line])\n` +
      `result = bytemill.compare(tokenizers, corpus, parallel=DECLARATION)\n` +
      `print(result.to_json())\n`,
    command: () =>
      `${printed(text)} | bytemill tokenizer compare ${tokenizers.map(shellWord).join(" ")} --text - --format text --documents line`,
  };
}

interface GenerationState {
  model: string;
  prompt: string;
  sampling: Schemas["Sampling"];
  maxTokens: number;
  seed: number | null;
  /** The ids after which the text was continued, if they are not those of the prompt. */
  ids: number[] | null;
}

export function generationSnippet({ model, prompt, sampling, maxTokens, seed, ids }: GenerationState): Snippet {
  const parameters = Object.entries(sampling).map(([name, value]) => `${name}=${value}`);
  const loaded =
    `from bytemill.lm.generation.decoding import SamplingParameters\n` +
    `from bytemill.lm.training.saved_model import load_trained\n\n` +
    `trained = load_trained(${pythonString(model)})\n` +
    `sampling = SamplingParameters(${parameters.join(", ")})\n`;
  const seedText = seed === null ? "None" : String(seed);
  if (ids !== null) {
    return {
      python: () =>
        `from bytemill.lm.generation.decoding import next_tokens\n` +
        `from bytemill.lm.generation.text_generation import ids_without_token\n` +
        loaded +
        `tok = trained.tokenizer\n` +
        `ids = ${JSON.stringify(ids)}\n` +
        `new = next_tokens(\n    trained.model, ids, ${maxTokens}, sampling, seed=${seedText},\n` +
        `    stop_ids=tok.special_tokens.values(),\n` +
        `    excluded_ids=ids_without_token(tok, trained.model.config.vocab_size),\n)\n` +
        `print(tok.decode([*ids, *(token.id for token in new)]))\n`,
      command: null,
      missing: "No command continues from chosen tokens",
    };
  }
  const options = Object.entries(sampling).map(([name, value]) => ` --${name.replaceAll("_", "-")} ${value}`);
  return {
    python: () =>
      `from bytemill.lm.generation.text_generation import GenerationOptions, generate_text\n` +
      loaded +
      `options = GenerationOptions(max_tokens=${maxTokens}, sampling=sampling, seed=${seedText})\n` +
      `prompt = ${pythonString(prompt)}\n` +
      `print(prompt, end="")\n` +
      `for new in generate_text(trained.model, trained.tokenizer, prompt, options, bos_id=trained.bos_id):\n` +
      `    print(new.text, end="", flush=True)\n`,
    command: () =>
      withText(
        `bytemill lm generate ${shellWord(model)} --max-tokens ${maxTokens}${options.join("")}` + (seed === null ? "" : ` --seed ${seed}`),
        prompt,
      ),
  };
}

interface ChatState {
  model: string;
  /** Up to the last one of the user. */
  messages: Schemas["ChatMessage"][];
  sampling: Schemas["Sampling"];
  maxTokens: number;
  seed: number | null;
  /** The answers before are those that the same settings give. */
  isAnswered: boolean;
}

export function chatSnippet({ model, messages, sampling, maxTokens, seed, isAnswered }: ChatState): Snippet {
  const asked = messages.filter((each) => each.role === "user").map((each) => each.content);
  const system = messages[0]?.role === "system" ? messages[0].content : null;
  const { temperature, top_p, ...others } = sampling;
  const isPlain = others.top_k === 0 && others.min_p === 0 && others.repetition_penalty === 1 && !asked.some((text) => /^\/|[\n\r\0]|^\s*$/.test(text));
  const parameters = Object.entries(sampling).map(([name, value]) => `${name}=${value}`);
  return {
    python: () =>
      `from bytemill.lm.generation.chat import chat_prompt\n` +
      `from bytemill.lm.generation.decoding import SamplingParameters\n` +
      `from bytemill.lm.generation.text_generation import GenerationOptions, generate_text\n` +
      `from bytemill.lm.training.saved_model import load_trained\n\n` +
      `trained = load_trained(${pythonString(model)})\n` +
      `messages = [\n${messages.map(({ role, content }) => `    {"role": "${role}", "content": ${pythonString(content)}},\n`).join("")}]\n` +
      `prompt = chat_prompt(trained.tokenizer, messages, trained.model.config.context_length, ${maxTokens})\n` +
      `sampling = SamplingParameters(${parameters.join(", ")})\n` +
      `options = GenerationOptions(max_tokens=${maxTokens}, sampling=sampling, seed=${seed ?? "None"})\n` +
      `for new in generate_text(trained.model, trained.tokenizer, prompt.text, options):\n` +
      `    print(new.text, end="", flush=True)\n`,
    command:
      isPlain && isAnswered
        ? () =>
            `printf '%s\\n' ${asked.map(shellWord).join(" ")} | bytemill lm chat ${shellWord(model)}${system === null ? "" : ` --system=${shellWord(system)}`}` +
            ` --max-tokens ${maxTokens} --temperature ${temperature} --top-p ${top_p}${seed === null ? "" : ` --seed ${seed}`}`
        : null,
    missing: isAnswered
      ? "bytemill lm chat takes messages of one line, temperature and top-p alone"
      : "No command repeats answers that were edited, or made with other settings",
  };
}

interface SurprisalState {
  models: string[];
  text: string;
  /** `lm eval` reads the text as the page does: in one window, and without special tokens in it. */
  isEvaluated: boolean;
}

export function surprisalSnippet({ models, text, isEvaluated }: SurprisalState): Snippet | null {
  if (!text) return null;
  return {
    python: () =>
      `from bytemill.lm.inspection import surprisal\nfrom bytemill.lm.training.saved_model import load_trained\n\n` +
      `text = ${pythonString(text)}\n` +
      `for path in [${models.map(pythonString).join(", ")}]:\n` +
      `    trained = load_trained(path)\n` +
      `    found = surprisal(trained.model, trained.tokenizer, text, bos_id=trained.bos_id)\n` +
      `    print(path, found.bits_per_byte, found.bits.tolist())\n`,
    command: isEvaluated
      ? () => models.map((model) => `${printed(text)} | bytemill lm eval ${shellWord(model)} --text -`).join("\n")
      : null,
    missing: "No command reads these windows: bytemill lm eval has windows of its own",
  };
}

interface InsideState {
  model: string;
  text: string;
  layer: number;
  head: number;
  /** The chosen token, from the start of the window; -1 is the last one. */
  token: number;
  /** The window has more tokens than are traced. */
  isCut: boolean;
  /** Number of tokens that are traced. */
  nTokens: number;
}

export function insideSnippet({ model, text, layer, head, token, isCut, nTokens }: InsideState): Snippet | null {
  if (!text) return null;
  return {
    python: () =>
      `from bytemill.lm.generation.decoding import window_start\n` +
      `from bytemill.lm.generation.text_generation import ids_without_token, prompt_ids\n` +
      `from bytemill.lm.inspection import trace\nfrom bytemill.lm.training.saved_model import load_trained\n\n` +
      `trained = load_trained(${pythonString(model)})\n` +
      `config = trained.model.config\n` +
      `ids = prompt_ids(trained.tokenizer, ${pythonString(text)}, trained.bos_id)\n` +
      (isCut ? `ids = ids[:${nTokens}]\n` : `ids = ids[window_start(len(ids), config.context_length):]\n`) +
      `found = trace(trained.model, ids, excluded_ids=ids_without_token(trained.tokenizer, config.vocab_size))\n` +
      `token = ${token}\n` +
      `print(found.attention[${layer}][${head}][token].tolist())\n` +
      `print(found.residual_norms[:, token].tolist())\n` +
      `print(found.lens_ids[:, token, 0].tolist(), found.lens_probabilities[:, token, 0].tolist())\n`,
    command: isCut
      ? null
      : () => withText(`bytemill lm generate ${shellWord(model)} --max-tokens 1 --temperature 0 --show-probabilities --alternatives 5`, text),
    missing: "No command stops at these tokens",
  };
}

export function runsSnippet(runs: string[]): Snippet | null {
  if (!runs.length) return null;
  return {
    python: () =>
      `from bytemill.lm.training.metrics_log import read_metrics\n\n` +
      `for run in [${runs.map(pythonString).join(", ")}]:\n` +
      `    for kind in ("step", "validation"):\n` +
      `        print(run, read_metrics(f"{run}/metrics.jsonl", kind)[-1:])\n`,
    command: () =>
      `for run in ${runs.map(shellWord).join(" ")}; do\n` +
      `  for kind in step validation; do grep -E "\\"kind\\": ?\\"$kind\\"" "$run/metrics.jsonl" | tail -n 1 || true; done\ndone`,
  };
}
