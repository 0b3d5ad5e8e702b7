/** What failed, where, and what to do about it: `message` has all of it. */
export interface CallwrightError extends Error {
  name: "CallwrightError";
  kind: "io" | "syntax" | "tools" | "messages" | "template" | "format" | "config";
  hint: string | null;
  file: string | null;
  line: number | null;
  column: number | null;
}

/** A value that JSON can hold. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json | undefined };

/** Tools in the shape of OpenAI, Anthropic, Gemini, Amazon or MCP. */
export type Tools = readonly object[] | object;

export interface ParseOptions {
  /** A built-in name, the text of a declaration, or `auto`, which detects the format. Default: `auto`. */
  format?: string;
  /** What the model may call. Without tools, nothing is checked against a schema. */
  tools?: Tools | null;
  /** The source of a chat template, or a built-in name, whose format is used. */
  template?: string;
  /** The end of the prompt that belongs to the answer, such as an opened `<think>`. */
  promptTail?: string;
  /** Separate the reasoning from the text, or leave it in the text. Default: `separate`. */
  reasoning?: "separate" | "text";
  /** Repair deviations from the format. Default: true. */
  repair?: boolean;
  /** Read calls in other forms than the format's. Default: `read`. */
  otherForms?: "read" | "report" | "off";
}

/** Bytes of the text. */
export interface Range {
  start: number;
  end: number;
}

export interface InvalidToolCall {
  id: string;
  name: string;
  arguments?: string;
  raw: string;
  error: string;
  position: Range;
}

export interface Repair {
  kind: string;
  range: Range;
}

export type Event =
  | { type: "text"; delta: string }
  | { type: "reasoning"; delta: string }
  | { type: "call_start"; id: string; name: string }
  | { type: "call_arguments"; id: string; delta: string }
  | { type: "call_end"; id: string; complete: boolean; valid: boolean }
  | ({ type: "invalid_call" } & InvalidToolCall)
  | ({ type: "repair" } & Repair);

export interface ToolCall {
  id: string;
  type: "function";
  function: { name: string; arguments: string };
  /** Whether it may be executed: it is complete and fits its tool. After the end. */
  runnable?: boolean;
}

export interface Message {
  role: "assistant";
  content: string | null;
  reasoning_content?: string;
  tool_calls?: ToolCall[];
  invalid_tool_calls?: InvalidToolCall[];
  /** The format that was detected. */
  format?: string;
  diagnostics: { kind: "repair" | "diagnostic" | "problem"; call?: string; repair?: Repair; message: string }[];
  tools_notices?: object[];
}

/** Reads one answer of a model while it arrives. */
export class Parser {
  constructor(options?: ParseOptions);
  /** Reads the next piece, and returns its events. */
  feed(piece: string | Uint8Array): Event[];
  /** Ends the text, and returns the last events. */
  finish(): Event[];
  /** The calls that may be executed: complete ones that fit their tools. Empty before the end. */
  runnableCalls(): ToolCall[];
  /** The message so far; after the end it has the diagnostics. */
  readonly message: Message;
  /** Gives the memory back, if the parser is dropped early. The garbage collector does it later, too. */
  free(): void;
}

/** Reads a whole text, and returns its message in OpenAI's form. */
export function parse(text: string | Uint8Array, options?: ParseOptions & { partial?: boolean }): Message;

export interface RenderOptions {
  /** The format of calls: `auto` chooses it, a name or a declaration sets it. Default: `auto`. */
  format?: string;
  tools?: Tools | null;
  /** End the prompt with the header of the assistant's turn. Default: true. */
  addGenerationPrompt?: boolean;
  bosToken?: string;
  eosToken?: string;
  /** More variables of the template, such as `enable_thinking`. */
  variables?: { [name: string]: Json };
  /** The template's clock, as `2026-01-15T12:00:00`. Default: the time now. */
  now?: string;
}

export interface Prompt {
  text: string;
  /** The format in which the model is to write calls. */
  format: string;
  /** What a parser of the answer needs as `promptTail`. */
  promptTail: string;
  /** How the conversation was adapted for the template. */
  notes: string[];
}

/** Renders a conversation: messages in OpenAI's form, or a request body. */
export function render(template: string, messages: readonly object[] | object, options?: RenderOptions): Prompt;

/** Renders a template with exactly these variables. */
export function renderVariables(template: string, variables: { [name: string]: Json }, now?: string): string;

export interface Report {
  renders: { what: string; needed: boolean; outcome: "pass" | "ignored" | "changed" | "fail"; how?: string; error?: string }[];
  round_trips: { what: string; written: string; problem: string | null; repair: string | null; declared: string | null }[];
  problems: string[];
  turns: {
    reasoning: boolean;
    after: string;
    differs: { at: number; tokens: number | null; lost: number | null; earlier: string; later: string } | null;
  }[];
  markers: object[];
  costs: object[];
  template: string;
  format: string | null;
  declaration: string | null;
  inferred: boolean;
  notes: string[];
  why: string | null;
  overlay: boolean;
  model: null;
  sound: boolean;
}

/** Reports what a chat template can do. */
export function checkTemplate(template: string, options?: { format?: string; variables?: { [name: string]: Json } }): Report;

export interface Format {
  name: string;
  payload: string;
  start: string | null;
  end: string | null;
  models: string;
  sample: string;
}

/** The built-in formats. */
export function formats(): Format[];
