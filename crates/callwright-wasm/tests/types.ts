// What the types must accept; `tsc --noEmit --strict` reads it.
import { type Event, type Message, Parser, checkTemplate, formats, parse, render, renderVariables } from "callwright";

const parser = new Parser({ format: "hermes", tools: [{ name: "clock" }], promptTail: "<think>", otherForms: "off" });
for (const event of parser.feed("text") as Event[]) {
  if (event.type === "call_start") event.name.toUpperCase();
  else if (event.type === "text") event.delta.length;
}
parser.finish();
const message: Message = parser.message;
const name: string | undefined = message.tool_calls?.[0]?.function.name;
const partial: Message = parse(new Uint8Array(), { partial: true });
const prompt = render("chatml", [{ role: "user", content: "Hi" }], { variables: { enable_thinking: false } });
const text: string = prompt.text + renderVariables("{{ x }}", { x: 1 }) + name + partial.content;
const sound: boolean = checkTemplate(text).sound && formats()[0].name === "delimited";
// @ts-expect-error: there is no such option
parse("", { prompt_tail: "" });
export { sound };
