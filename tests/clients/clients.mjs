// OpenAI's client for JavaScript: a call, its result and the answer, whole and streamed.
import OpenAI from "openai";
import assert from "node:assert/strict";

const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: "none" });
const user = [{ role: "user", content: "What's the weather in Beijing tomorrow?" }];
const parameters = {
  type: "object",
  properties: { city: { type: "string" }, date: { type: "string" } },
  required: ["city", "date"],
};
const tools = [{ type: "function", function: { name: "get_weather", description: "Get the weather", parameters } }];
const wanted = { city: "Beijing", date: "tomorrow" };

const { message } = (await client.chat.completions.create({ model: "bundled", messages: user, tools })).choices[0];
assert.deepEqual(JSON.parse(message.tool_calls[0].function.arguments), wanted);
const history = [...user, message, { role: "tool", tool_call_id: message.tool_calls[0].id, content: "21 C, sunny" }];
const answer = await client.chat.completions.create({ model: "bundled", messages: history, tools });
assert.match(answer.choices[0].message.content, /21 C/);

const stream = client.chat.completions.stream({ model: "bundled", messages: user, tools });
const streamed = (await stream.finalChatCompletion()).choices[0].message;
assert.equal(streamed.tool_calls[0].function.arguments, message.tool_calls[0].function.arguments);

const runner = client.chat.completions.runTools({
  model: "bundled",
  messages: user,
  tools: [{ type: "function", function: { ...tools[0].function, function: () => "21 C, sunny", parse: JSON.parse } }],
});
assert.match(await runner.finalContent(), /21 C/);

const response = await client.responses.create({
  model: "bundled",
  input: user[0].content,
  tools: [{ type: "function", strict: false, ...tools[0].function }],
});
assert.deepEqual(JSON.parse(response.output.at(-1).arguments), wanted);
console.log("ok  openai for JavaScript: chat, stream, tool runner, responses");
