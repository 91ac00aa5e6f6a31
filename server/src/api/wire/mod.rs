//! The shapes of the HTTP contract. They know how values are written, and decide nothing.

mod bulk;
mod bulk_filter;
mod error_group;
mod flow;
mod job;
mod new_job;
mod parse;
mod queue;
mod report;
mod row;
pub(crate) mod search;
mod setting;
mod snapshot;
mod status;
mod system;
mod time;

pub(crate) use bulk::{Bulk, BulkAnswer, BulkLine, BulkList, DryRun, NewBulk, QueueCount};
pub(crate) use error_group::{ErrorCounts, ErrorDetail, ErrorGroup, ErrorList, Shared};
pub(crate) use job::{Attempts, Explained, Job, JobAnswer, JobList, Notes, OneAttempt, Raw};
pub(crate) use new_job::{Batch, BatchAnswer, BatchResult, Enqueued, NAME, NewJob};
pub(crate) use parse::{Query, job_id, json, json_with_list, token, unescaped};
pub(crate) use queue::{Queue, QueueDeleted, QueueDetail, QueueList, Settings, Shown};
pub(crate) use report::{
    Claims, Complete, Fail, Heartbeat, LeaseExtended, LeasedJob, Poll, PurgePage, Release, Replay,
    ReplayPage, Report, ReportResult, Reported, Reports, ReportsAnswer, Settled, Snooze,
};
pub(crate) use row::{JobRow, RowList};
pub(crate) use setting::{Ignored, NewSetting, Setting, SettingList};
pub(crate) use snapshot::{
    History, HistoryMark, HistorySeries, LateRates, Me, QueueHistory, QueueLine, Slots, Snapshot,
    StoreFacts, WorkerCounts,
};
pub(crate) use status::{
    Checkup, Counts as StatusCounts, QueueSums, Rates, Status, StoreSize, WorkerSums,
};
pub(crate) use system::{Alive, Nothing, Ready, Worker, WorkerList};
pub(crate) use time::{Time, instant, rfc3339};
