// Shapes of the API and of the dashboard's own parts, for the check of its types only.

type Child = Node | string | number | null | undefined | false | Child[];
type Props = { [name: string]: unknown; nodeType?: never; length?: never };
/** Not yet in the library of the compiler. */
interface JSON {
  rawJSON(text: string): unknown;
  parse(text: string, reviver: (key: string, value: any, context?: { source?: string }) => unknown): any;
}

interface Me { name: string | null; scopes: string[]; open: boolean; label: string | null }
interface Counts { queued: number; scheduled: number; processing: number; done: number; failed: number; cancelled: number }
interface QueueLine {
  name: string; paused: boolean; paused_at: string | null; paused_by: string | null; counts: Counts;
  oldest_ready_age_ms: number | null; concurrency: number | null; enqueued_per_s: number; done_per_s: number;
  wait_p95_ms: number | null; run_p95_ms: number | null; run_p50_ms: number | null; starved: boolean; rev: number;
}
interface Snapshot {
  at: string; full: boolean; build: string; version: string; host: string; label: string | null; health: string;
  started_at: string; counts: Counts; oldest_ready_age_ms: number | null; next_due: string | null;
  last_done_at: string | null; slots: { total: number; busy: number };
  workers: { alive: number; stale: number; stale_jobs: number };
  rates: { enqueued_per_s: number; done_per_s: number; failed_per_s: number };
  errors?: { groups: number; new: number; jobs: number; rev: number }; retrying?: number; bulk?: BulkLine[];
  queues: QueueLine[]; removed: string[]; more: boolean; queues_total: number;
  store: { kind: string; durability: string; bytes: number; wal_bytes: number; free_bytes: number | null; total_bytes?: number | null; commit_p50_ms: number; commit_p95_ms: number };
}
type HistoryRange = '10m' | '1h' | '24h' | '7d';
interface QueueHistory { name: string; done: number[] }
interface History {
  from: string; step_ms: number; covers: string; marks: { at: string; what: string; queue: string | null }[];
  series: Record<'enqueued' | 'done' | 'failed' | 'retried', number[]> &
    Record<'queued' | 'processing' | 'oldest_age_ms' | 'wait_p50_ms' | 'wait_p95_ms' | 'run_p50_ms' | 'run_p95_ms', (number | null)[]>;
  queues?: QueueHistory[];
}
interface Retry { strategy: string; initial_ms: number; factor: number | null; cap_ms: number; jitter: number }
interface JobRow {
  id: number; queue: string; kind: string; view: string; state: string; priority: number; attempts: number;
  max_retries: number; generation: number; run_at: string; timeout_ms: number | null; visibility_timeout_ms: number;
  retry?: Retry; idempotency_key: string | null; worker: string | null; lease_until: string | null; created_at: string;
  updated_at: string; started_at: string | null; finished_at: string | null; last_error: string | null;
  error_group?: string | null; progress: unknown; payload_head?: string; payload_bytes: number; result_bytes: number | null;
}
interface Attempt {
  epoch: number; worker: string; started_at: string; ended_at: string; outcome: string; error: string | null;
  exit_code: number | null; stdout: string | null; stderr: string | null; truncated: boolean;
}
type Part = { text: string } | { slot: string };
interface ErrorGroup {
  id: string; kind: string; title: Part[]; sample: string; count: number; first_at: string; last_at: string;
  queues: { name: string; count: number }[]; hours: number[]; newest: number[];
}
interface Shared { where: string; path: string | null; value: unknown; share: number }
type BulkState = 'canary' | 'held' | 'running' | 'done' | 'stopped';
interface BulkLine { id: number; state: BulkState; done: number; of: number }
interface Bulk extends BulkLine {
  action: 'retry' | 'cancel' | 'delete'; filter: Record<string, string> | null; by: string | null; as_of: string; refused: number;
  canary: { count: number; max_failed: number; released: number; passed: number; failed: number } | null; pace: { per_s: number } | null; eta_ms: number | null;
}
interface KindCounts { kind: string; counts: Counts }
interface QueueSettings {
  max_queued: number | null; concurrency: number | null; visibility_timeout_ms: number | null;
  max_retries: number | null; timeout_ms: number | null; retry: Retry | null;
  aging_ms: number | null; rate: Rate | null; kinds: Record<string, KindLimits> | null;
}
interface Rate { limit: number; per_ms: number; burst: number | null }
interface KindLimits { concurrency: number | null; rate: Rate | null }
interface Queue {
  name: string; paused: boolean; counts: Counts; oldest_ready_age_ms: number | null;
  rates: { enqueued_per_s: number; done_per_s: number }; settings: QueueSettings;
}
interface Worker {
  id: string; host: string; pid: number | null; kind: string; version: string | null; node: string | null; started_at: string; last_heartbeat: string; alive: boolean;
  stopping: boolean; slots: number; queues: string[] | null; kinds: string[] | null; running: number[]; running_total: number;
}
interface Setting {
  name: string; value: string; origin: string; default: string; stored: string | null; type: string; allowed: string;
  environment: string; help: string;
}
/** What a page is given. */
interface Page {
  main: HTMLElement; path: string[]; query: URLSearchParams;
  keys: (keys: Record<string, () => unknown>) => void;
  crumb: (parent: [string, string], title: string) => void;
  address: (change: Record<string, string | null>) => void;
  again: () => void;
}
