/** Return the machine's id of a target id. */
export const machineOf = (targetId: string) => targetId.slice(0, Math.max(0, targetId.indexOf(":")));

/** Return the session whose page is at a path, below the base path. */
export function sessionAt(path: string, basePath: string): string | undefined {
  const [, encoded] = /^sessions\/([^/]+)\/?$/.exec(path.slice(basePath.length)) ?? [];
  try {
    return encoded && decodeURIComponent(encoded);
  } catch {
    return undefined;
  }
}
