//! The shapes of the HTTP contract. They know how values are written, and decide nothing.

mod job;
mod new_job;
mod parse;
mod queue;
mod report;
mod setting;
mod status;
mod system;
mod time;

pub(crate) use job::{Attempts, Explained, Job, JobAnswer, JobList};
pub(crate) use new_job::{Batch, BatchAnswer, BatchResult, Enqueued, NAME, NewJob};
pub(crate) use parse::{Query, job_id, json, unescaped};
pub(crate) use queue::{Queue, QueueList, Settings};
pub(crate) use report::{
    Claims, Complete, Fail, Heartbeat, LeaseExtended, LeasedJob, Poll, PurgePage, Release, Replay,
    ReplayPage, Report, ReportResult, Reports, ReportsAnswer, Settled, Snooze,
};
pub(crate) use setting::{NewSetting, Setting, SettingList};
pub(crate) use status::{
    Checkup, Counts as StatusCounts, QueueSums, Rates, Status, StoreSize, WorkerSums,
};
pub(crate) use system::{Alive, Nothing, Ready, Worker, WorkerList};
pub(crate) use time::{Time, instant, rfc3339};
