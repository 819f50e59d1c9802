import type { Schemas } from "outrider-client";

export type ChangedFile = Schemas["Changes"]["files"][number];

/** Return the parts of a patch, each of which begins with `diff --git`. */
function splitPatch(patch: string): string[] {
  // Lines of files begin with a space, `+`, `-` or `\`, so that none of them looks like a header.
  return patch.split(/^(?=diff --git )/m).filter((part) => part.startsWith("diff --git "));
}

const quoted = (path: string) => `"${path.replace(/[\\"]/g, "\\$&").replace(/\t/g, "\\t").replace(/\n/g, "\\n")}"`;

function headers(file: ChangedFile): string[] {
  const [before, after] = [`a/${file.oldPath ?? file.path}`, `b/${file.path}`];
  const names = (path: string) => [path, quoted(path)];
  return names(before).flatMap((from) => names(after).map((to) => `diff --git ${from} ${to}`));
}

/** Return the part of a patch that belongs to each file; files without one are not in the result. */
export function patchesOf(files: readonly ChangedFile[], patch: string): Map<string, string> {
  const parts = new Map(splitPatch(patch).map((part) => [part.split("\n", 1)[0] as string, part]));
  const byPath = new Map<string, string>();
  for (const file of files) {
    const part = headers(file)
      .map((header) => parts.get(header))
      .find((candidate) => candidate !== undefined);
    if (part !== undefined) byPath.set(file.path, part);
  }
  return byPath;
}
