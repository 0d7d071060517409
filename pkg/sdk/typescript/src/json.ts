// JSON whose integers are exact: one that a number cannot hold becomes a bigint. JSON.parse alone would round it.

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Reads JSON in UTF-8; everything that is wrong with it is an exception, whose text may quote it. */
export function parseJSON(bytes: Uint8Array): unknown {
  const text = utf8.decode(bytes);
  // Beyond 2^53 an integer has at least 16 digits.
  if (!/[0-9]{16}/.test(text)) return JSON.parse(text);
  const { marked, marker } = markBigIntegers(text);
  return JSON.parse(marked, (_, value: unknown) =>
    typeof value === "string" && value.startsWith(marker) ? BigInt(value.slice(marker.length)) : value,
  );
}

/** Writes each integer that a number cannot hold as a string that begins with `marker`, which is nowhere in the text. */
function markBigIntegers(text: string): { marked: string; marker: string } {
  let marker = "bigint:";
  while (text.includes(marker)) marker = `bigint${Math.random().toString(36).slice(2)}:`;
  let marked = "";
  let copied = 0;
  let at = 0;
  while (at < text.length) {
    const c = text[at] as string;
    if (c === '"') {
      at = endOfString(text, at);
      continue;
    }
    if (c !== "-" && !(c >= "0" && c <= "9")) {
      at++;
      continue;
    }
    const start = at++;
    while (at < text.length && /[0-9.eE+-]/.test(text[at] as string)) at++;
    const token = text.slice(start, at);
    if (/^-?[1-9][0-9]{15,}$/.test(token) && !Number.isSafeInteger(Number(token))) {
      marked += `${text.slice(copied, start)}"${marker}${token}"`;
      copied = at;
    }
  }
  return { marked: marked + text.slice(copied), marker };
}

function endOfString(text: string, start: number): number {
  let at = start + 1;
  while (at < text.length && text[at] !== '"') at += text[at] === "\\" ? 2 : 1;
  return at + 1;
}
