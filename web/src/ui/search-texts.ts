/** Return these parts of an address's query that are texts with something in them. */
export function searchTexts<K extends string>(
  search: Record<string, unknown>,
  ...names: K[]
): Partial<Record<K, string>> {
  const given = names.flatMap((name) => {
    const value = search[name];
    // A text of digits only is read as a number.
    return typeof value === "number" || (typeof value === "string" && value !== "") ? [[name, String(value)]] : [];
  });
  return Object.fromEntries(given) as Partial<Record<K, string>>;
}
