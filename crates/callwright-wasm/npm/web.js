// Browsers and bundlers: the module is fetched from beside this file.
import init from "./native.js";

await init({ module_or_path: new URL("./native_bg.wasm", import.meta.url) });

export { Parser, checkTemplate, formats, parse, render, renderVariables } from "./native.js";
