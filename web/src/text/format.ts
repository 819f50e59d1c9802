import { t } from "@/text";

/** Return a function that formats times. Its formatter is made when first needed: that takes a phone 100 ms. */
function formatter(options: Intl.DateTimeFormatOptions): (at: number) => string {
  let format: Intl.DateTimeFormat | undefined;
  return (at) => (format ??= new Intl.DateTimeFormat(undefined, options)).format(at);
}

export const exactTime = formatter({ dateStyle: "medium", timeStyle: "medium" });
export const clockTime = formatter({ timeStyle: "medium" });
const day = formatter({ month: "short", day: "numeric" });
const dayOfYear = formatter({ dateStyle: "medium" });

/** Return how long ago a time was, in few letters: `now`, `5m`, `3h`, `2d`, then the date. */
export function shortAge(at: number, now: number): string {
  const minutes = Math.floor((now - at) / 60_000);
  if (minutes < 1) return t("time.now");
  if (minutes < 60) return `${minutes}m`;
  if (minutes < 24 * 60) return `${Math.floor(minutes / 60)}h`;
  if (minutes < 7 * 24 * 60) return `${Math.floor(minutes / (24 * 60))}d`;
  return new Date(at).getFullYear() === new Date(now).getFullYear() ? day(at) : dayOfYear(at);
}

/** Return a duration in seconds with its two largest units: `3d 4h`. */
export function duration(seconds: number): string {
  const units: [string, number][] = [
    ["d", 86_400],
    ["h", 3600],
    ["m", 60],
    ["s", 1],
  ];
  const parts: string[] = [];
  let rest = Math.max(0, Math.floor(seconds));
  for (const [unit, size] of units) {
    const n = Math.floor(rest / size);
    rest -= n * size;
    if (n > 0 || (unit === "s" && parts.length === 0)) parts.push(`${n}${unit}`);
    if (parts.length === 2) break;
  }
  return parts.join(" ");
}

export function bytes(n: number): string {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let value = n;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value < 10 && unit > 0 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export const number = (n: number) => n.toLocaleString();
