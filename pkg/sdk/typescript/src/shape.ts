// Answers are checked against shapes: known members must have their type, unknown ones are let through as they are.

import { Secret } from "./secret.js";

type Scalar = "string" | "integer" | "boolean" | "strings" | "secret";
/** Checks a value and gives it, or throws. */
type Check = (value: unknown) => unknown;
type Rule = Scalar | Check;

/** Reads a T, or throws. */
export type Shape<T> = (value: unknown) => T;

const wrong = (): never => {
  throw new TypeError("unexpected type");
};

const checks: Record<Scalar, Check> = {
  string: (value) => (typeof value === "string" ? value : wrong()),
  boolean: (value) => (typeof value === "boolean" ? value : wrong()),
  // A bigint, which is what an integer beyond 2^53 was read as, is none.
  integer: (value) => (Number.isSafeInteger(value) ? value : wrong()),
  strings: (value) => (Object.values(members(value)).every((v) => typeof v === "string") ? value : wrong()),
  secret: (value) => (typeof value === "string" ? new Secret(value) : wrong()),
};

const check = (rule: Rule): Check => (typeof rule === "string" ? checks[rule] : rule);

function members(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : wrong();
}

/** What may be missing or null. */
export function optional(rule: Rule): Check {
  const inner = check(rule);
  return (value) => (value === undefined || value === null ? value : inner(value));
}

export function list(rule: Rule): Check {
  const inner = check(rule);
  return (value) => (Array.isArray(value) ? value.map(inner) : wrong());
}

export function object<T>(rules: Record<string, Rule>): Shape<T> {
  const inner = Object.entries(rules).map(([name, rule]) => [name, check(rule)] as const);
  return (value) => {
    const found = members(value);
    for (const [name, rule] of inner) {
      const given = Object.hasOwn(found, name) ? found[name] : undefined;
      const read = rule(given);
      if (read !== given) found[name] = read;
    }
    return found as T;
  };
}
