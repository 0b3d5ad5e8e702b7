"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const PAGE = 100;
const filter = document.querySelector(".filter");
const list = document.querySelector(".list");
const more = document.querySelector(".more");
const counts = new Map();
let found = [];

function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function sampleOf(row) {
  const [caseIndex, configuration, repeat, outcome, detail, raw, prompt, calls, repairs, tokens, turns, state] = row;
  const [id, category, expected, asked] = data.cases[caseIndex];
  return { id, category, expected, asked, configuration, repeat, outcome, detail, raw, prompt, calls, repairs, tokens, turns, state };
}

// Markers and calls are shown at their places in the raw text.
function highlighted(sample) {
  const { markers } = data.configurations[sample.configuration];
  const pre = element("pre");
  const cut = sample.raw.includes(" […");
  let at = 0;
  const plain = (text, into) => {
    const escaped = markers.map((marker) => marker.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
    const parts = escaped.length ? text.split(new RegExp(`(${escaped.join("|")})`)) : [text];
    for (const part of parts) into.append(markers.includes(part) ? element("mark", {}, part) : part);
  };
  if (!cut) {
    for (const [start, end] of sample.calls) {
      if (start < at) continue;
      plain(sample.raw.slice(at, start), pre);
      const call = element("span", { className: "call" });
      plain(sample.raw.slice(start, end), call);
      pre.append(call);
      at = end;
    }
  }
  plain(sample.raw.slice(at), pre);
  return pre;
}

function body(sample) {
  const made = element("div", { className: "body" });
  const part = (title, ...content) => made.append(element("h3", {}, title), ...content);
  if (sample.asked) part("Asked", element("pre", {}, sample.asked));
  if (sample.detail) part("Why", element("pre", {}, sample.detail));
  if (sample.state) part("What is different in the state", element("pre", {}, sample.state));
  if (sample.turns.length) {
    // Opened where the answers left the right path, or else all.
    const left = sample.turns.some(([, , here]) => here);
    sample.turns.forEach(([status, text, here], index) => {
      const title = `Turn ${index + 1} of ${sample.turns.length}: ${status}${here ? ", and here it went wrong" : ""}`;
      const turn = element("details", { open: here || !left }, element("summary", {}, title), element("pre", {}, text));
      turn.firstChild.style.display = "block";
      made.append(turn);
    });
    part("Expected", element("pre", {}, sample.expected));
    return made;
  }
  part(`What the model wrote (${sample.tokens} tokens)`, highlighted(sample));
  const calls = element("pre");
  for (const [, , name, args, valid, problems] of sample.calls) {
    calls.append(`${name || "(no name)"} ${args}\n`);
    if (!valid) calls.append(element("span", { className: "bad" }, `  ${problems.join("; ") || "not valid"}\n`));
  }
  part("What was read", sample.calls.length ? calls : element("pre", {}, "no call"));
  if (sample.repairs.length) part("Repaired: the call had", element("pre", {}, sample.repairs.join("\n")));
  part("Expected", element("pre", {}, sample.expected));
  if (sample.prompt !== null) {
    const prompt = element("details", {}, element("summary", {}, "Prompt"), element("pre", {}, data.prompts[sample.prompt]));
    prompt.firstChild.style.display = "block";
    made.append(prompt);
  }
  return made;
}

function show() {
  const from = list.childElementCount;
  for (const row of found.slice(from, from + PAGE)) {
    const sample = sampleOf(row);
    const outcome = data.outcomes[sample.outcome];
    const swatch = element("i", { className: "swatch" });
    swatch.style.background = `var(--${outcome})`;
    const name = sample.repeat ? `${sample.id} #${sample.repeat + 1}` : sample.id;
    const where = data.configurations.length > 1 ? `${data.configurations[sample.configuration].label}: ` : "";
    const details = element("details", {}, element("summary", {},
      element("span", {}, swatch, outcome), element("span", {}, name),
      element("span", { className: "why" }, where + sample.detail)));
    details.addEventListener("toggle", () => {
      if (details.open && details.childElementCount === 1) details.append(body(sample));
    });
    list.append(details);
  }
  more.hidden = list.childElementCount >= found.length;
}

function search() {
  const chosen = (id) => document.getElementById(id).value;
  const text = chosen("text").toLowerCase();
  const [configuration, outcome, category] = ["configuration", "outcome", "category"].map(chosen);
  found = data.samples.filter((row) => {
    if (configuration !== "" && row[1] !== Number(configuration)) return false;
    if (outcome === "failed" ? data.outcomes[row[3]] === "correct" : outcome !== "" && row[3] !== Number(outcome)) return false;
    const [id, of, , asked] = data.cases[row[0]];
    if (category !== "" && of !== category) return false;
    return !text || `${id}\n${asked}\n${row[4]}\n${row[5]}\n${row[10].join("\n")}`.toLowerCase().includes(text);
  });
  filter.querySelector("output").textContent = `${found.length} of ${data.samples.length}`;
  list.replaceChildren();
  show();
}

function choices(id, options) {
  const select = document.getElementById(id);
  for (const [value, label] of options) select.append(element("option", { value }, label));
  select.addEventListener("input", search);
}

for (const row of data.samples) counts.set(row[3], (counts.get(row[3]) ?? 0) + 1);
choices("configuration", [["", "all"], ...data.configurations.map(({ label }, index) => [index, label])]);
choices("outcome", [["", "all"], ["failed", "not correct"],
  ...data.outcomes.map((name, index) => [index, `${name} (${counts.get(index)})`]).filter(([index]) => counts.has(index))]);
choices("category", [["", "all"], ...[...new Set(data.cases.map(([, category]) => category))].map((name) => [name, name])]);
document.getElementById("text").addEventListener("input", search);
document.getElementById("outcome").value = data.samples.some((row) => data.outcomes[row[3]] !== "correct") ? "failed" : "";
filter.addEventListener("submit", (event) => event.preventDefault());
more.addEventListener("click", show);
filter.hidden = false;
// A link may say which answers to show: #configuration=1&outcome=&text=one-call
for (const [id, value] of new URLSearchParams(location.hash.slice(1))) {
  if (["configuration", "outcome", "category", "text"].includes(id)) document.getElementById(id).value = value;
}
search();
if (location.hash.length > 1) {
  document.getElementById("samples").scrollIntoView();
  if (found.length === 1) list.firstChild.open = true;
}
