/**
 * A client of the API, typed by its description (`api.ts`, generated). It has no dependencies.
 *
 *     const api = createClient({ baseUrl: "https://outrider.example.org", headers: { Authorization: `Bearer ${key}` } });
 *     const { daemons } = await api.get("/api/v1/daemons");
 *     await api.post("/api/v1/shortcuts/{ideId}/chat", { path: { ideId }, body: { message: "Hello" } });
 *
 * A response that is an error is thrown as `ApiError`, and a service that cannot be reached as
 * `UnreachableError`.
 */
import type { components, paths } from "./api.js";

export type Schemas = components["schemas"];

type Method = "get" | "post" | "patch" | "delete";
type PathsOf<M extends Method> = {
  [P in keyof paths]: paths[P] extends Record<M, { responses: unknown }> ? P : never;
}[keyof paths];

type Operation<P extends keyof paths, M extends Method> = paths[P] extends Record<M, infer O> ? O : never;
type PathOf<O> = O extends { parameters: { path: infer V } } ? V : never;
type QueryOf<O> = O extends { parameters: { query?: infer V } } ? V : never;
type BodyOf<O> = O extends { requestBody?: infer B }
  ? NonNullable<B> extends { content: { "application/json": infer V } }
    ? V
    : never
  : never;
type Success<R> = { [S in keyof R]: S extends 200 | 201 | 202 ? R[S] : never }[keyof R];
export type Result<P extends keyof paths, M extends Method> =
  Operation<P, M> extends { responses: infer R }
    ? Success<R> extends { content: { "application/json": infer V } }
      ? V
      : unknown
    : never;

type Optional<K extends string, V> = [V] extends [never] ? unknown : { [X in K]?: V };
type Required_<K extends string, V> = [V] extends [never] ? unknown : { [X in K]: V };
export type Parameters_<P extends keyof paths, M extends Method> = Required_<"path", PathOf<Operation<P, M>>> &
  Optional<"query", QueryOf<Operation<P, M>>> &
  Optional<"body", BodyOf<Operation<P, M>>> & { signal?: AbortSignal; idempotencyKey?: string };
type Arguments<P extends keyof paths, M extends Method> = [PathOf<Operation<P, M>>] extends [never]
  ? [parameters?: Parameters_<P, M>]
  : [parameters: Parameters_<P, M>];

/** A refusal by the service: `message` is a sentence that a person can act on. */
export class ApiError extends Error {
  readonly status: number;
  /** The cause for programs, of errors that have one. */
  readonly code: string | undefined;
  readonly details: { path: string; message: string }[];
  /** Seconds after which to try again, if the service said so. */
  readonly retryAfter: number | undefined;
  readonly requestId: string | undefined;

  constructor(
    status: number,
    message: string,
    code: string | undefined,
    details: { path: string; message: string }[],
    retryAfter: number | undefined,
    requestId: string | undefined,
  ) {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.code = code;
    this.details = details;
    this.retryAfter = retryAfter;
    this.requestId = requestId;
  }
}

/** No response: the service is not running, or the network is down. */
export class UnreachableError extends Error {
  constructor(cause: unknown) {
    super("The service cannot be reached", { cause });
    this.name = "UnreachableError";
  }
}

export interface ClientOptions {
  /** The address of the service, with its base path, without `/` at the end. */
  baseUrl: string;
  headers?: Record<string, string>;
  fetch?: typeof fetch;
  /**
   * Called for each refusal. Return true to make the request once more, for example after the
   * user has given the password again.
   */
  onRefusal?: (error: ApiError, path: string) => Promise<boolean>;
}

export type Client = {
  [M in Method]: <P extends PathsOf<M>>(path: P, ...rest: Arguments<P, M>) => Promise<Result<P, M>>;
};

interface AnyParameters {
  path?: Record<string, string>;
  query?: Record<string, string | number | boolean | null | undefined>;
  body?: unknown;
  signal?: AbortSignal;
  idempotencyKey?: string;
}

export function createClient(options: ClientOptions): Client {
  const send = options.fetch ?? ((...args: Parameters<typeof fetch>) => fetch(...args));

  async function once(method: Method, path: string, given: AnyParameters): Promise<unknown> {
    const headers: Record<string, string> = { Accept: "application/json", ...options.headers };
    const init: RequestInit = { method: method.toUpperCase(), headers, credentials: "same-origin" };
    if (method !== "get") {
      headers["Content-Type"] = "application/json";
      init.body = JSON.stringify(given.body ?? {});
    }
    if (given.idempotencyKey) headers["Idempotency-Key"] = given.idempotencyKey;
    if (given.signal) init.signal = given.signal;
    let response: Response;
    try {
      response = await send(options.baseUrl + address(path, given), init);
    } catch (error) {
      if (given.signal?.aborted) throw error;
      throw new UnreachableError(error);
    }
    if (!response.ok) throw await refusal(response);
    return response.status === 204 ? undefined : await response.json();
  }

  async function call(method: Method, path: string, given: AnyParameters = {}): Promise<unknown> {
    try {
      return await once(method, path, given);
    } catch (error) {
      if (!(error instanceof ApiError) || !(await options.onRefusal?.(error, path))) throw error;
      return await once(method, path, given);
    }
  }

  const of = (method: Method) => (path: string, given?: AnyParameters) => call(method, path, given);
  return { get: of("get"), post: of("post"), patch: of("patch"), delete: of("delete") } as Client;
}

/** Return the path with its parameters filled in, and the query. */
export function address(path: string, given: Pick<AnyParameters, "path" | "query">): string {
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = given.path?.[name];
    if (value === undefined) throw new TypeError(`The path needs ${name}`);
    return encodeURIComponent(value);
  });
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(given.query ?? {})) {
    if (value !== undefined && value !== null) query.set(name, String(value));
  }
  const text = query.toString();
  return text ? `${filled}?${text}` : filled;
}

/** Return the error that a response means; a proxy's page instead of JSON gets a sentence too. */
export async function refusal(response: Response): Promise<ApiError> {
  let body: { error?: unknown; code?: unknown; details?: unknown } = {};
  try {
    const parsed: unknown = await response.json();
    if (typeof parsed === "object" && parsed !== null) body = parsed;
  } catch {
    // no JSON: a proxy in between answered
  }
  const after = Number(response.headers.get("Retry-After"));
  return new ApiError(
    response.status,
    typeof body.error === "string" ? body.error : `The service answered ${response.status}`,
    typeof body.code === "string" ? body.code : undefined,
    Array.isArray(body.details) ? (body.details as { path: string; message: string }[]) : [],
    Number.isFinite(after) && after > 0 ? after : undefined,
    response.headers.get("X-Request-Id") ?? undefined,
  );
}
