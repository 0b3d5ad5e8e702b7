// Cloudflare's workers and others that compile WebAssembly when they are deployed: an import is the compiled module.
import { initSync } from "./native.js";
import module from "./native_bg.wasm";

initSync({ module });

export { Parser, checkTemplate, formats, parse, render, renderVariables } from "./native.js";
