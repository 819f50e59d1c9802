// Finishes the built files: marks the code of the first page, and writes a compressed copy beside
// each text asset, so that the service only sends files.
import { readdir, readFile, writeFile } from "node:fs/promises";
import { gzipSync } from "node:zlib";

// Chromium compiles a file that begins so as a whole while it arrives, on another thread, instead of
// each function when it is first called, which delays the first page.
const COMPILE_AT_ONCE = "//# allFunctionsCalledOnLoad\n";

const folder = new URL("../src/outrider/service/static/assets/", import.meta.url);
for (const name of await readdir(folder)) {
  if (!/\.(js|css|svg)$/.test(name)) continue;
  const file = new URL(name, folder);
  if (/^(prefetch|main|session)-.*\.js$/.test(name))
    await writeFile(file, COMPILE_AT_ONCE + (await readFile(file, "utf8")));
  await writeFile(new URL(`${name}.gz`, folder), gzipSync(await readFile(file), { level: 9 }));
}
