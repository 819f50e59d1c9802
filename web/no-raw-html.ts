/**
 * Stands in for rehype-raw, which parses HTML inside Markdown: HTML of an agent stays text. It also
 * leaves an HTML parser out of what a browser has to load.
 */
export default function noRawHtml(): undefined {
  return undefined;
}
