/** Requests to the server: typed, with its errors, and with notice of a lost connection. */

import type { components } from "./api-types";
import { queue } from "./queue.svelte";

export type Schemas = components["schemas"];

const PREFIX = "/api/v1";

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly hint: string | null = null,
  ) {
    super(message);
  }
}

/** The server cannot be reached, or does not know this page any more. */
export class OfflineError extends Error {}

type OnLoss = (isRestarted: boolean) => void;
let onLoss: OnLoss = () => {};

/** Call `listener` when the server does not answer, or was restarted with another token. */
export function watchConnection(listener: OnLoss): void {
  onLoss = listener;
}

// Not randomUUID, which browsers offer to encrypted pages alone.
const PAGE = Math.random().toString(36).slice(2);
let nRequests = 0;

async function send(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  const name = `${PAGE}-${++nRequests}`;
  const init: RequestInit = { method, credentials: "same-origin" };
  const headers: Record<string, string> = { "x-job": name };
  if (signal) init.signal = signal;
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    headers["content-type"] = "application/json";
  }
  let response: Response;
  const unwatch = queue.watch(name, () => before(name));
  try {
    response = await fetch(PREFIX + path, { ...init, headers });
  } catch (error) {
    if (signal?.aborted) throw error;
    onLoss(false);
    throw new OfflineError("the studio's server does not answer");
  } finally {
    unwatch();
  }
  if (response.status === 401) {
    onLoss(true);
    throw new OfflineError("this studio was restarted: open the address it printed");
  }
  if (!response.ok) {
    const found = (await response.json().catch(() => ({}))) as { detail?: unknown; hint?: string | null };
    const message = typeof found.detail === "string" ? found.detail : `the server answered ${response.status}`;
    throw new ApiError(response.status, message, found.hint ?? null);
  }
  return response;
}

/** How many jobs wait before a request; null if it does not wait. */
async function before(name: string): Promise<number | null> {
  const response = await fetch(`${PREFIX}/jobs/${name}`, { credentials: "same-origin" });
  return response.ok ? ((await response.json()) as Schemas["Queued"]).before : null;
}

async function json<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  return (await send(method, path, body, signal)).json() as Promise<T>;
}

export const get = <T>(path: string, signal?: AbortSignal): Promise<T> => json<T>("GET", path, undefined, signal);
export const post = <T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> =>
  json<T>("POST", path, body, signal);
export const patch = <T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> =>
  json<T>("PATCH", path, body, signal);

export interface ServerEvent {
  name: string;
  data: Record<string, unknown>;
}

/**
 * Yield the server-sent events of a POST request, but for those of its place in the queue. A stream that ends before
 * its last event is an error.
 */
export async function* events(path: string, body: unknown, signal: AbortSignal): AsyncGenerator<ServerEvent> {
  const response = await send("POST", path, body, signal);
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  let isComplete = false;
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      buffer += value;
      for (let end = buffer.indexOf("\n\n"); end >= 0; end = buffer.indexOf("\n\n")) {
        const event = parseEvent(buffer.slice(0, end));
        buffer = buffer.slice(end + 2);
        isComplete ||= event.name === "done" || event.name === "failed";
        if (event.name === "queued") queue.set(reader, event.data["before"] as number | null);
        else yield event;
      }
    }
  } catch (error) {
    if (signal.aborted) throw error;
    onLoss(false);
    throw new OfflineError("the connection was lost");
  } finally {
    queue.set(reader, null);
    void reader.cancel().catch(() => {});
  }
  if (!isComplete && !signal.aborted) {
    onLoss(false);
    throw new OfflineError("the connection was lost");
  }
}

function parseEvent(block: string): ServerEvent {
  let name = "message";
  let data = "{}";
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    if (line.startsWith("data: ")) data = line.slice(6);
  }
  return { name, data: JSON.parse(data) as Record<string, unknown> };
}

function bytesOf(base64: string): ArrayBuffer {
  // Newer browsers decode ten times faster.
  const native = (Uint8Array as unknown as { fromBase64?: (text: string) => Uint8Array<ArrayBuffer> }).fromBase64;
  if (native) return native.call(Uint8Array, base64).buffer;
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes.buffer;
}

export const bytes = (packed: string): Uint8Array => new Uint8Array(bytesOf(packed));
export const uint32 = (packed: string): Uint32Array<ArrayBuffer> => new Uint32Array(bytesOf(packed));
export const float32 = (packed: string): Float32Array => new Float32Array(bytesOf(packed));
export const float64 = (packed: string): Float64Array => new Float64Array(bytesOf(packed));

export function hexBytes(hex: string): Uint8Array {
  const found = new Uint8Array(hex.length / 2);
  for (let i = 0; i < found.length; i++) found[i] = parseInt(hex.slice(2 * i, 2 * i + 2), 16);
  return found;
}

/** An error as one sentence for people. */
export function messageOf(error: unknown): string {
  if (error instanceof ApiError) return error.hint ? `${error.message}. ${sentence(error.hint)}` : error.message;
  return error instanceof Error ? error.message : String(error);
}

const sentence = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1) + ".";
