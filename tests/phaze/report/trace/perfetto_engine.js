// Runs Perfetto's trace processor, the WebAssembly engine behind its user interface, outside a browser:
// bytes of its protocol come in on standard input and go out on standard output.
// Usage: node perfetto_engine.js FOLDER, which holds engine_bundle.js and the .wasm files.
"use strict";
const fs = require("node:fs");
const path = require("node:path");
const vm = require("node:vm");

const folder = process.argv[2];

// The engine fetches its .wasm file.
class FileRequest {
  open(method, url) {
    this.url = url;
  }
  send() {
    const bytes = fs.readFileSync(path.join(folder, path.basename(this.url)));
    this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
    this.status = 200;
  }
}

// What it uses of a web worker, in a context of its own, because it refuses to run where it sees more than that.
const toErrors = (...words) => console.error(...words);
const worker = {
  console: { log: toErrors, warn: toErrors, error: toErrors },
  importScripts() {},
  location: { href: "engine_bundle.js" },
  WorkerGlobalScope: class {},
  XMLHttpRequest: FileRequest,
  TextDecoder,
  TextEncoder,
  crypto,
  performance,
  setTimeout,
  clearTimeout,
  setInterval,
  clearInterval,
};
worker.self = worker;
vm.createContext(worker);
vm.runInContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf-8"), worker);
const BytesThere = vm.runInContext("Uint8Array", worker);

function writeAll(bytes) {
  for (let done = 0; done < bytes.length; ) {
    done += fs.writeSync(1, bytes, done);
  }
}

const port = { postMessage: writeAll };
worker.onmessage({ data: port });
// The engine is ready when what waits for its .wasm file has run.
setTimeout(() => {
  process.stdin.on("data", (chunk) => port.onmessage({ data: new BytesThere(chunk) }));
  process.stdin.on("end", () => process.exit(0));
}, 50);
