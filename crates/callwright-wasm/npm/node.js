// Node, Deno and Bun: the module is a file beside this one.
import { readFileSync } from "node:fs";
import { initSync } from "./native.js";

initSync({ module: readFileSync(new URL("./native_bg.wasm", import.meta.url)) });

export { Parser, checkTemplate, formats, parse, render, renderVariables } from "./native.js";
