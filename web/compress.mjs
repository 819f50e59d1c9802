// Writes a compressed copy beside each text asset, so that the service only sends files.
import { readdir, readFile, writeFile } from "node:fs/promises";
import { gzipSync } from "node:zlib";

const folder = new URL("../src/outrider/cloud/static/assets/", import.meta.url);
for (const name of await readdir(folder)) {
  if (!/\.(js|css|svg)$/.test(name)) continue;
  const file = new URL(name, folder);
  await writeFile(new URL(`${name}.gz`, folder), gzipSync(await readFile(file), { level: 9 }));
}
