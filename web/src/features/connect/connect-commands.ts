/** Return a name as one word for a shell. */
const shellWord = (name: string) => (/^\w[\w.-]*$/.test(name) ? name : `'${name.replaceAll("'", `'\\''`)}'`);

/** Return the commands that connect a machine, which `nickname` may name. */
export function connectCommands(server: string, code: string, nickname: string): string[] {
  const name = nickname && ` --nickname ${shellWord(nickname)}`;
  return [`outrider setup --server ${server} --code ${code}${name}`, "outrider daemon"];
}
