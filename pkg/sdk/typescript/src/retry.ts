// The two calculations of the retry policy: how long to wait, and what Retry-After says.

const BASE_MS = 500;
const CEILING_MS = 8000;
const CEILING_N = 4; // BASE_MS * 2**CEILING_N is the ceiling
/** The longest wait that a server's Retry-After can ask for. */
export const MAX_WAIT_SECONDS = 60;
const MAX_SECONDS = 2 ** 31 - 1;

/** The wait before retry n+1, n from 0: full jitter, `random` times the smaller of 500 ms * 2**n and 8 s. */
export function backoff(n: number, random: number): number {
  const limit = n >= CEILING_N ? CEILING_MS : BASE_MS * 2 ** Math.max(n, 0);
  if (!(random >= 0)) return 0; // NaN too
  return Math.min(random, 1) * limit;
}

const DAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const IMF_FIXDATE = /^([A-Z][a-z]{2}), ([0-9]{2}) ([A-Z][a-z]{2}) ([0-9]{4}) ([0-9]{2}):([0-9]{2}):([0-9]{2}) GMT$/;

/**
 * How many whole seconds from `now` (in ms) a Retry-After header asks for, rounded up and never negative. Only digits and
 * IMF-fixdate count; anything else is undefined, and so is a header that is there more than once, which fetch joins by commas.
 */
export function retryAfterSeconds(header: string | null, now: number): number | undefined {
  if (header === null) return undefined;
  const text = header.replace(/^[ \t]+|[ \t]+$/g, "");
  if (/^[0-9]+$/.test(text)) return Math.min(Number(text), MAX_SECONDS);
  const match = IMF_FIXDATE.exec(text);
  if (match === null) return undefined;
  const [, weekday = "", day, month = "", year, hour, minute, second] = match;
  const parts = [Number(year), MONTHS.indexOf(month), Number(day), Number(hour), Number(minute), Number(second)] as const;
  const date = new Date(0);
  date.setUTCFullYear(parts[0], parts[1], parts[2]); // Date.UTC takes the years 0 to 99 for 19xx
  date.setUTCHours(parts[3], parts[4], parts[5]);
  // What does not exist, like February 30 or 24:00, was carried over to the next unit.
  const same = [
    date.getUTCFullYear(), date.getUTCMonth(), date.getUTCDate(), date.getUTCHours(), date.getUTCMinutes(), date.getUTCSeconds(),
  ].every((part, i) => part === parts[i]);
  if (!same || DAYS[date.getUTCDay()] !== weekday) return undefined;
  return Math.min(Math.max(Math.ceil((date.getTime() - now) / 1000), 0), MAX_SECONDS);
}
