// The package as its users see it; run where it is installed.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Parser, checkTemplate, formats, parse, render, renderVariables } from "callwright";

const tools = [
  {
    type: "function",
    function: {
      name: "get_weather",
      description: "Get the weather",
      parameters: {
        type: "object",
        properties: { city: { type: "string" }, days: { type: "integer" } },
        required: ["city"],
      },
    },
  },
];
const hermes =
  'Let me see.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich", "days": "2"}}\n</tool_call>';
const question = [{ role: "user", content: "What's the weather in Zürich?" }];

function joined(events) {
  const list = [];
  for (const event of events) {
    const last = list.at(-1);
    if (last?.delta !== undefined && last.type === event.type && last.id === event.id) last.delta += event.delta;
    else list.push({ ...event });
  }
  return list;
}

test("a whole text becomes a message", () => {
  const message = parse(hermes, { format: "hermes", tools });
  assert.equal(message.content, "Let me see.");
  assert.equal(message.tool_calls[0].function.name, "get_weather");
  assert.deepEqual(JSON.parse(message.tool_calls[0].function.arguments), { city: "Zürich", days: 2 });
  assert.deepEqual(message.diagnostics.map((note) => note.repair.kind), ["value_type"]);
});

test("only calls that fit their tools are runnable", () => {
  const wrong = '<tool_call>{"name": "get_weather", "arguments": {"days": 2}}</tool_call>';
  const parser = new Parser({ format: "hermes", tools });
  parser.feed(hermes + wrong);
  assert.deepEqual(parser.runnableCalls(), []);
  parser.finish();
  const calls = parser.message.tool_calls;
  assert.deepEqual(calls.map((call) => call.runnable), [true, false]);
  assert.deepEqual(parser.runnableCalls(), calls.slice(0, 1));
});

test("the format is detected", () => {
  assert.equal(parse(hermes, { tools }).format, "hermes");
  assert.equal(parse(hermes).tool_calls.length, 1);
});

test("events do not depend on the pieces", () => {
  const whole = new Parser({ format: "hermes", tools });
  const expected = joined([...whole.feed(hermes), ...whole.finish()]);
  assert.deepEqual(
    expected.map((event) => event.type),
    ["text", "call_start", "call_arguments", "repair", "call_end"],
  );
  const bytes = new TextEncoder().encode(hermes);
  for (const size of [1, 2, 5]) {
    const parser = new Parser({ format: "hermes", tools });
    const events = [];
    for (let at = 0; at < bytes.length; at += size) events.push(...parser.feed(bytes.subarray(at, at + size)));
    events.push(...parser.finish());
    assert.deepEqual(joined(events), expected);
    assert.deepEqual(parser.message, whole.message);
    parser.free();
  }
});

test("a cut call is apart", () => {
  const message = parse(hermes.slice(0, 60), { format: "hermes", tools });
  assert.equal(message.tool_calls, undefined);
  assert.equal(message.invalid_tool_calls[0].name, "get_weather");
  const partial = parse(hermes.slice(0, 60), { format: "hermes", tools, partial: true });
  assert.equal(partial.tool_calls[0].function.name, "get_weather");
});

test("every format reads its sample", () => {
  assert.ok(formats().length >= 27);
  for (const { name, sample } of formats()) {
    const call = parse(sample, { format: name }).tool_calls[0].function;
    assert.deepEqual([call.name, JSON.parse(call.arguments)], ["get_weather", { city: "Oslo", days: 2 }], name);
  }
});

test("errors say what to do", () => {
  const cases = [
    [() => new Parser({ format: "hermse" }), "format", "did you mean `hermes`?"],
    [() => new Parser({ reasoning: "apart" }), "config", "expected one of: separate, text"],
    [() => new Parser({ prompt_tail: "" }), "config", "promptTail"],
    [() => new Parser("hermes"), "config", "the options are no object"],
    [() => new Parser({ tools: 5 }), "tools", "expected a list of tools"],
    [() => new Parser({ tools: "tools.json" }), "tools", "expected a list of tools"],
    [() => new Parser({ template: "chatlm" }), "template", "did you mean `chatml`?"],
    [() => render("{{ messages }}\n{% nonsense %}", question), "template", "template:2"],
    [() => render("chatml", [{ role: "user", content: "Hi" }, 7]), "messages", "messages[1]"],
    [() => renderVariables("{{ x }}", {}, "noon"), "config", "which is no time"],
    [() => checkTemplate("chatml", { format: "auto" }), "config", "leave the option out"],
    [() => parse(5), "config", "neither a string nor a Uint8Array"],
  ];
  for (const [work, kind, words] of cases) {
    assert.throws(work, (error) => {
      assert.ok(error instanceof Error);
      assert.equal(error.name, "CallwrightError");
      assert.equal(error.kind, kind, error.message);
      assert.ok(error.message.includes(words), error.message);
      return true;
    });
  }
  assert.throws(() => {
    const cyclic = [];
    cyclic.push(cyclic);
    parse("", { tools: cyclic });
  }, TypeError);
  const parser = new Parser();
  parser.finish();
  assert.throws(() => parser.feed("more"), /the text has ended/);
});

test("a prompt knows its format and its tail", () => {
  const prompt = render("chatml", question);
  assert.ok(prompt.text.endsWith("<|im_start|>assistant\n"));
  assert.equal(prompt.promptTail, "<|im_start|>assistant\n");
  const plain = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
  const overlaid = render(plain, question, { tools, format: "hermes" });
  assert.equal(overlaid.format, "hermes");
  assert.ok(overlaid.text.includes("get_weather"));
  assert.equal(render(plain, question).text, "<user>What's the weather in Zürich?");
});

test("the clock is that of JavaScript", () => {
  const template = "{{ strftime_now('%Y') }}{{ messages[0].content }}";
  assert.equal(render(template, [{ role: "user", content: "!" }]).text, `${new Date().getFullYear()}!`);
  assert.equal(render(template, [{ role: "user", content: "!" }], { now: "2001-01-15T12:00:00" }).text, "2001!");
  assert.equal(renderVariables("{{ x }} {{ y | tojson }}", { x: null, y: [true] }), "None [true]");
});

test("a check says what a template lacks", () => {
  const report = checkTemplate("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}");
  assert.equal(report.sound, false);
  assert.equal(report.renders.find((render) => render.what === "tools").outcome, "ignored");
  assert.equal(checkTemplate("hermes").sound, true);
});

test("an endless template is stopped", () => {
  const template = "{% for a in range(99999999) %}{% for b in range(99999999) %}{{ a }}{% endfor %}{% endfor %}";
  assert.throws(() => render(template, question));
  // The module still works.
  assert.equal(parse(hermes, { tools }).format, "hermes");
});

test("a long text is read in many pieces", () => {
  const parser = new Parser({ format: "hermes" });
  const piece = "The same words again. ".repeat(50);
  const events = [];
  for (let i = 0; i < 2000; i++) events.push(...parser.feed(piece));
  events.push(...parser.finish());
  assert.equal(events.map((event) => event.delta).join(""), parser.message.content);
  assert.equal(parser.message.content.trimEnd().length, 2000 * piece.length - 1);
});

test("browsers and workers get the same names", () => {
  const folder = new URL(".", import.meta.resolve("callwright"));
  const exported = (file) => /export \{(.*)\}/.exec(readFileSync(new URL(file, folder), "utf8"))[1];
  assert.equal(exported("web.js"), exported("node.js"));
  assert.equal(exported("workerd.js"), exported("node.js"));
});
