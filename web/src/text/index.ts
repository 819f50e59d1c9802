import { en } from "./en";
import { visible } from "./visible";

export { visible };

export type Texts = typeof en;
export type TextKey = keyof Texts;
type Values<K extends TextKey> = Texts[K] extends (...values: infer V) => string ? V : [];

/** Return a text of the dashboard in the user's language. */
export function t<K extends TextKey>(key: K, ...values: Values<K>): string {
  const text: string | ((...values: never[]) => string) = en[key];
  return typeof text === "string" ? text : text(...(values as never[]));
}
