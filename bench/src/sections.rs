//! The sections of `all`, in the order of the report: commands, and columns of the table.

/// Commands, and the columns of their table.
#[derive(Debug)]
pub(crate) struct Section {
    /// Chosen by `--only`.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// Explains the figures, and what they are compared with.
    pub(crate) says: &'static str,
    /// Commands; `{full|quick}` is replaced by the size in a real run and in a quick one.
    pub(crate) runs: &'static [&'static str],
    /// Whether its commands take `--dir`.
    pub(crate) has_dir: bool,
    /// Lines of other scenarios are left out of the table.
    pub(crate) scenario: &'static str,
    /// Name of the figure and heading of each column.
    pub(crate) columns: &'static [(&'static str, &'static str)],
    /// Drawings below the table.
    pub(crate) plots: &'static [Plot],
}

/// A chart of the same lines.
#[derive(Debug)]
pub(crate) struct Plot {
    /// The name of its file, without its ending.
    pub(crate) file: &'static str,
    /// Caption above the drawing.
    pub(crate) title: &'static str,
    /// Shows the lines of this scenario.
    pub(crate) scenario: &'static str,
    /// The figure along the horizontal axis, and its name.
    pub(crate) x: (&'static str, &'static str),
    /// The base of a logarithmic horizontal axis; 1 for a plain one.
    pub(crate) base: f64,
    /// The figures along the vertical axis, each with its name.
    pub(crate) ys: &'static [(&'static str, &'static str)],
    /// The words that distinguish lines.
    pub(crate) by: &'static [&'static str],
}

/// Everything that `all` runs.
pub(crate) const SECTIONS: &[Section] = &[
    Section {
        name: "store",
        title: "What a store makes of its engine",
        says: "`Store::commit` with batches of 500, beside a plain loop on the same engine that \
               writes the same rows, one by one, with the same durability. Ratio: ours by the \
               loop's.",
        runs: &[
            "store --store sqlite --jobs {50000|500} --rounds {3|1}",
            "store --store redb --jobs {50000|500} --rounds {3|1}",
            "store --store postgres --jobs {50000|500} --rounds {3|1}",
        ],
        has_dir: true,
        scenario: "store",
        columns: &[
            ("store", "store"),
            ("enqueue_per_s", "enqueued/s"),
            ("enqueue_ratio", "ratio"),
            ("work_per_s", "claimed and completed/s"),
            ("work_ratio", "ratio"),
            ("bytes_per_done_job", "bytes per done job"),
        ],
        plots: &[],
    },
    Section {
        name: "lifecycle",
        title: "Whole lives of jobs",
        says: "Producers enqueue one by one, each waiting for its durable receipt, until all jobs \
               are done; beside the same commits without a runtime.",
        runs: &[
            "lifecycle --store sqlite --producers 64 --jobs {100000|500} --rounds {3|1}",
            "lifecycle --store sqlite --producers 1024 --jobs {100000|2000} --rounds {3|1}",
            "lifecycle --store redb --producers 64 --jobs {100000|500} --rounds {3|1}",
            "lifecycle --store redb --producers 1024 --jobs {100000|2000} --rounds {3|1}",
            "lifecycle --store postgres --producers 1 --jobs {3000|20} --rounds {3|1}",
            "lifecycle --store postgres --producers 64 --jobs {100000|500} --rounds {3|1}",
            "lifecycle --store postgres --producers 1024 --jobs {100000|2000} --rounds {3|1}",
        ],
        has_dir: true,
        scenario: "lifecycle",
        columns: LIVES,
        plots: &[],
    },
    Section {
        name: "drain",
        title: "Working off",
        says: "Claim and complete jobs that were enqueued before, through the runtime; beside the \
               same commits without a runtime.",
        runs: &[
            "drain --store sqlite --workers 64 --jobs {100000|500} --rounds {3|1}",
            "drain --store sqlite --workers 1024 --jobs {100000|2000} --rounds {3|1}",
            "drain --store redb --workers 64 --jobs {100000|500} --rounds {3|1}",
            "drain --store redb --workers 1024 --jobs {100000|2000} --rounds {3|1}",
            "drain --store postgres --workers 64 --jobs {100000|500} --rounds {3|1}",
            "drain --store postgres --workers 1024 --jobs {100000|2000} --rounds {3|1}",
        ],
        has_dir: true,
        scenario: "drain",
        columns: &[
            ("store", "store"),
            ("workers", "workers"),
            ("jobs_per_s", "jobs/s"),
            ("ceiling_per_s", "same commits/s"),
            ("ratio", "ratio"),
        ],
        plots: &[],
    },
    Section {
        name: "nodes",
        title: "Several nodes on one PostgreSQL",
        says: "Whole lives as above, with 64 producers at each node. All nodes share one schema, \
               and the machine with the server. Ratio: by one node. Aim: at least 1.4 with four.",
        runs: &["nodes --store postgres --nodes 1,4 --jobs {100000|200} --rounds {3|1}"],
        has_dir: true,
        scenario: "nodes",
        columns: &[
            ("store", "store"),
            ("nodes", "nodes"),
            ("producers", "producers at each"),
            ("jobs_per_s", "jobs/s"),
            ("ratio", "ratio"),
        ],
        plots: &[],
    },
    Section {
        name: "held",
        title: "While another transaction stays open",
        says: "Commits that enqueue, claim and complete 64 jobs, beside 10 000 that wait, before \
               and at the end of a foreign transaction of a minute, and after it: PostgreSQL can \
               remove no dead row meanwhile. Aim: a ratio of p50 of at most 2.",
        runs: &["held --store postgres --seconds {60|1} --window {10|1}"],
        has_dir: true,
        scenario: "held",
        columns: &[
            ("store", "store"),
            ("before_p50_us", "before, p50 µs"),
            ("held_p50_us", "held, p50 µs"),
            ("after_p50_us", "after, p50 µs"),
            ("p50_ratio", "ratio"),
            ("before_jobs_per_s", "before, jobs/s"),
            ("held_jobs_per_s", "held, jobs/s"),
        ],
        plots: &[],
    },
    Section {
        name: "workers",
        title: "From 1 to 1024 workers",
        says: "Claim and complete stored jobs; beside commits of the same size without a \
               runtime.",
        runs: &[
            "workers --store sqlite --jobs {30000|500} --workers {1,4,16,64,256,1024|1,16}",
            "workers --store redb --jobs {30000|500} --workers {1,4,16,64,256,1024|1,16}",
        ],
        has_dir: true,
        scenario: "workers",
        columns: &[
            ("store", "store"),
            ("workers", "workers"),
            ("jobs_per_s", "jobs/s"),
            ("ceiling_per_s", "same commits/s"),
            ("ratio", "ratio"),
        ],
        plots: &[Plot {
            file: "workers",
            title: "claimed and completed per second, by workers",
            scenario: "workers",
            x: ("workers", "workers"),
            base: 2.0,
            ys: &[("jobs_per_s", "jobs/s")],
            by: &["store"],
        }],
    },
    Section {
        name: "payload",
        title: "Payloads from 100 bytes to 1 MiB",
        says: "Whole lives with 64 producers; beside the same commits without a runtime.",
        runs: &[
            "payload --store sqlite --jobs {20000|200} --mib {64|1}",
            "payload --store redb --jobs {20000|200} --mib {64|1}",
        ],
        has_dir: true,
        scenario: "payload",
        columns: &[
            ("store", "store"),
            ("payload", "payload bytes"),
            ("jobs_per_s", "jobs/s"),
            ("mib_per_s", "MiB/s"),
            ("ratio", "by the same commits"),
        ],
        plots: &[Plot {
            file: "payload",
            title: "payload written per second, by its size",
            scenario: "payload",
            x: ("payload", "bytes"),
            base: 10.0,
            ys: &[("mib_per_s", "MiB/s")],
            by: &["store"],
        }],
    },
    Section {
        name: "backlog",
        title: "Beside a backlog",
        says: "Claim and complete 100 000 jobs beside this number of queued or done ones; the \
               sizes take turns. Ratio: by the smallest size of the same round.",
        runs: &[
            "backlog --store sqlite --sizes {10000,100000,1000000,5000000|100,1000} \
             --jobs {100000|500} --rounds {7|1}",
            "backlog --store redb --sizes {10000,100000,1000000,5000000|100,1000} \
             --jobs {100000|500} --rounds {7|1}",
            "backlog --store postgres --sizes {10000,1000000,5000000|100,1000} --views queued \
             --jobs {100000|500} --rounds {3|1}",
        ],
        has_dir: true,
        scenario: "backlog",
        columns: &[
            ("store", "store"),
            ("view", "lying there"),
            ("size", "how many"),
            ("jobs_per_s", "jobs/s"),
            ("ratio", "ratio"),
            ("rss_kib", "memory KiB"),
            ("file_kib", "file KiB"),
        ],
        plots: &[Plot {
            file: "backlog",
            title: "claimed and completed per second, beside a backlog",
            scenario: "backlog",
            x: ("size", "jobs lying there"),
            base: 10.0,
            ys: &[("jobs_per_s", "jobs/s")],
            by: &["store", "view"],
        }],
    },
    Section {
        name: "queues",
        title: "Many queues",
        says: "Claim and complete the same number of jobs, spread evenly over queues and kinds, \
               with `Store::commit`: each commit claims a batch for any queue and kind and \
               completes the batch before it. The stores take turns. Ratio: to one queue with as \
               many kinds. Aim: at least 0.8 with 2 000 queues.",
        runs: &[
            "queues --store sqlite --jobs {40000|200} --rounds {3|1}",
            "queues --store sqlite --batch 100 --jobs {40000|200} --rounds {3|1}",
            "queues --store redb --jobs {40000|200} --rounds {3|1}",
            "queues --store redb --batch 100 --jobs {40000|200} --rounds {3|1}",
        ],
        has_dir: true,
        scenario: "queues",
        columns: &[
            ("store", "store"),
            ("batch", "jobs per commit"),
            ("kinds", "kinds"),
            ("queues", "queues"),
            ("jobs_per_s", "claimed and completed/s"),
            ("ratio", "ratio"),
        ],
        plots: &[],
    },
    Section {
        name: "pickup",
        title: "An idle queue",
        says: "From the call of enqueue, which syncs once, to the start of the handler; beside one \
               sync of the same disk.",
        runs: &[
            "pickup --store sqlite --jobs {500|20}",
            "pickup --store redb --jobs {500|20}",
            "pickup --store postgres --jobs {500|20}",
        ],
        has_dir: true,
        scenario: "pickup",
        columns: &[
            ("store", "store"),
            ("p50_us", "p50 µs"),
            ("p99_us", "p99 µs"),
            ("sync_p50_us", "one sync, p50 µs"),
            ("sync_p99_us", "one sync, p99 µs"),
        ],
        plots: &[],
    },
    Section {
        name: "across",
        title: "Enqueued by another process",
        says: "From the call that enqueues a job in one process to the start of its handler in \
               another, idle one. It takes two commits. Aim: p50 of at most 5 ms on SQLite, 20 ms \
               on PostgreSQL.",
        runs: &["across --store sqlite --jobs {200|10}", "across --store postgres --jobs {200|10}"],
        has_dir: true,
        scenario: "across",
        columns: &[
            ("store", "store"),
            ("p50_us", "p50 µs"),
            ("p99_us", "p99 µs"),
            ("max_us", "max µs"),
        ],
        plots: &[],
    },
    Section {
        name: "cancel",
        title: "Cancelled by another process",
        says: "From an acknowledged cancel in one process to the moment at which the handler in \
               another process is asked to stop; SQLite only, since a redb file belongs to one \
               process. Cancels come at random moments of one heartbeat interval, a third of the \
               lease. Aim: p99 of at most 1 000 ms.",
        runs: &["cancel --store sqlite --leases {30,120|1,2} --jobs {200|10}"],
        has_dir: true,
        scenario: "cancel",
        columns: &[
            ("store", "store"),
            ("lease_s", "lease s"),
            ("p50_ms", "p50 ms"),
            ("p99_ms", "p99 ms"),
            ("max_ms", "max ms"),
        ],
        plots: &[],
    },
    Section {
        name: "idle",
        title: "What doing nothing costs",
        says: "A runtime without work; `alone` says that no other process writes.",
        runs: &[
            "idle --store sqlite --seconds {5|1}",
            "idle --store sqlite --seconds {5|1} --alone",
            "idle --store redb --seconds {5|1}",
            "idle --store postgres --seconds {5|1}",
        ],
        has_dir: true,
        scenario: "idle",
        columns: &[
            ("store", "store"),
            ("alone", "alone"),
            ("core_percent", "% of a core"),
            ("context_switches", "context switches"),
            ("statements_per_s", "statements/s"),
            ("rss_kib", "memory KiB"),
        ],
        plots: &[],
    },
    Section {
        name: "restart",
        title: "After a kill",
        says: "From `kill -9` of the real server to the first claim from the next one, and from \
               opening a store in a program to its first claim.",
        runs: &[
            "restart --store sqlite --sizes {1000,1000000|100,1000} --rounds {5|1}",
            "restart --store redb --sizes {1000,1000000|100,1000} --rounds {3|1}",
            "restart --store postgres --sizes {1000,1000000|100,1000} --rounds {3|1}",
        ],
        has_dir: true,
        scenario: "restart",
        columns: &[
            ("store", "store"),
            ("jobs", "jobs stored"),
            ("kill_to_claim_us", "kill to claim µs"),
            ("kill_to_claim_worst_us", "worst"),
            ("library_open_us", "library: open µs"),
            ("library_first_claim_us", "open and claim µs"),
            ("library_first_claim_worst_us", "worst"),
        ],
        plots: &[],
    },
    Section {
        name: "http",
        title: "Over HTTP",
        says: "The real server on loopback, with its clients on the same cores; beside a trivial \
               server that answers the same bytes, and beside the library with as many producers.",
        runs: &[
            "http --store sqlite --connections 64 --jobs {60000|500}",
            "http --store sqlite --connections 64 --jobs {100000|2000} --batch 100",
            "http --store redb --connections 64 --jobs {60000|500}",
            "http --store postgres --connections 64 --jobs {60000|500}",
        ],
        has_dir: false,
        scenario: "http",
        columns: &[
            ("store", "store"),
            ("connections", "connections"),
            ("batch", "jobs per request"),
            ("enqueue_per_s", "enqueued/s"),
            ("ceiling_per_s", "trivial server/s"),
            ("of_ceiling", "ratio"),
            ("library_per_s", "library, one by one/s"),
            ("of_library", "ratio"),
            ("drain_per_s", "claimed and completed/s"),
            ("resident_kib", "memory KiB"),
        ],
        plots: &[],
    },
    Section {
        name: "soak",
        title: "Minutes of mixed load",
        says: "A steady pace of mixed jobs: payloads of three sizes, delays, first attempts that \
               fail, three priorities; done jobs are purged after some seconds. Flat: the later \
               half needs no more than a tenth in addition.",
        runs: &[
            "soak --store sqlite --seconds {50|4} --keep-seconds {4|1} --sample-ms {1000|200}",
            "soak --store redb --seconds {30|4} --keep-seconds {3|1} --sample-ms {1000|200}",
            "soak --store postgres --seconds {50|4} --keep-seconds {4|1} --sample-ms {1000|200}",
        ],
        has_dir: true,
        scenario: "soak",
        columns: &[
            ("store", "store"),
            ("seconds", "seconds"),
            ("done", "jobs done"),
            ("rss_early_kib", "memory KiB, earlier half"),
            ("rss_late_kib", "later"),
            ("wal_early_kib", "log KiB, earlier half"),
            ("wal_late_kib", "later"),
            ("file_early_kib", "file KiB, earlier half"),
            ("file_late_kib", "later"),
            ("flat", "flat"),
        ],
        plots: &[Plot {
            file: "soak",
            title: "memory, log and file under mixed load",
            scenario: "soak-sample",
            x: ("ms", "ms"),
            base: 1.0,
            ys: &[("rss_kib", "memory KiB"), ("wal_kib", "log KiB"), ("file_kib", "file KiB")],
            by: &["store"],
        }],
    },
    Section {
        name: "peers",
        title: "Beside other queues",
        says: "The same work for each, in turn: jobs of 100 bytes, handlers that do nothing, 64 at \
               once. What an acknowledgement promises differs, so it stands in every row; compare \
               rows that promise the same. `bench/peers/README.md` says how each is set up.",
        runs: &["peers --jobs {20000|200} --rounds {3|1} --seconds {2|1}"],
        has_dir: false,
        scenario: "peers",
        columns: &[
            ("peer", "queue"),
            ("setting", "setting"),
            ("durability", "what is acknowledged"),
            ("one_per_s", "enqueued/s, 1 producer"),
            ("many_per_s", "64 producers"),
            ("bulk_per_s", "in bulk"),
            ("drain_per_s", "drained/s"),
            ("pickup_p50_us", "pickup p50 µs"),
            ("pickup_p99_us", "p99 µs"),
            ("pickup_stalls", "not picked up in 10 s"),
        ],
        plots: &[],
    },
    Section {
        name: "peers-postgres",
        title: "Beside other queues on PostgreSQL",
        says: "The same work on one server, in turn; all of them sync every acknowledged job. \
               Whole lives: 64 producers in each of one and four processes, with handlers in all \
               of them.",
        runs: &["peers --postgres --jobs {20000|200} --rounds {3|1} --seconds {4|1}"],
        has_dir: false,
        scenario: "peers-postgres",
        columns: &[
            ("peer", "queue"),
            ("one_per_s", "enqueued/s, 1 producer"),
            ("many_per_s", "64 producers"),
            ("bulk_per_s", "in bulk"),
            ("drain_per_s", "drained/s"),
            ("lives_1_per_s", "whole lives/s"),
            ("lives_4_per_s", "4 processes"),
            ("pickup_p50_us", "pickup p50 µs"),
            ("pickup_p99_us", "p99 µs"),
        ],
        plots: &[],
    },
];

const LIVES: &[(&str, &str)] = &[
    ("store", "store"),
    ("producers", "producers"),
    ("jobs_per_s", "jobs/s"),
    ("ceiling_per_s", "same commits/s"),
    ("ratio", "ratio"),
    ("commits", "commits"),
];
