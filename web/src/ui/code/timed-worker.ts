/** A worker that answers one request at a time, and is ended with any that takes too long. */

/** For how long a request may take once the worker has started on it. */
const LIMIT_MS = 2000;
/** For how long what a request needs may be loaded. */
const LOAD_MS = 20_000;
/** Requests that may wait; older ones are dropped: what they were for has scrolled away. */
const MOST_WAITING = 100;

interface Job<Request, Response> {
  request: Request;
  resolve: (response: Response | undefined) => void;
}

/** What a worker sends while it works on a request: at first that it has started, then the response. */
type Sent = { started: true } | object;

export class TimedWorker<Request, Response extends object> {
  private worker: Worker | undefined;
  private current: Job<Request, Response> | undefined;
  private readonly waiting: Job<Request, Response>[] = [];
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly create: () => Worker) {}

  /** Return the worker's response, or undefined if there was none in time. */
  ask(request: Request): Promise<Response | undefined> {
    return new Promise((resolve) => {
      this.waiting.push({ request, resolve });
      if (this.waiting.length > MOST_WAITING) this.waiting.shift()?.resolve(undefined);
      this.next();
    });
  }

  private next(): void {
    if (this.current) return;
    this.current = this.waiting.shift();
    if (!this.current) return;
    this.worker ??= this.start();
    this.limit(LOAD_MS);
    this.worker.postMessage(this.current.request);
  }

  private start(): Worker {
    const worker = this.create();
    worker.onmessage = ({ data }: MessageEvent<Sent>) => {
      if ("started" in data) this.limit(LIMIT_MS);
      else this.finish(data as Response);
    };
    worker.onerror = () => this.abort();
    return worker;
  }

  private limit(ms: number): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.abort(), ms);
  }

  private abort(): void {
    this.worker?.terminate();
    this.worker = undefined;
    this.finish(undefined);
  }

  private finish(response: Response | undefined): void {
    clearTimeout(this.timer);
    const job = this.current;
    this.current = undefined;
    job?.resolve(response);
    this.next();
  }
}
