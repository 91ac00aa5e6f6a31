//! A stage for the dispatcher machine: it drives a machine over a store with a clock of its own
//! and writes down what went in and what came out, as text that a person reads.

use std::fmt::Write as _;

use windlass_core::machine::{
    Answer, Config, Effect, Input, Machine, Phase, Poll, Request, StoreCall,
};
use windlass_core::store::{Admin, AdminDone, Batch, Settle, Store, Worker, WorkerKind};
use windlass_core::{
    Demand, Kind, LeaseToken, Millis, Mono, NewJob, Now, Payload, ProcessId, QueueName, Queues,
    RequestId, Verdict, Wall, WorkerId,
};

/// A machine on a stage.
#[derive(Debug)]
pub struct Stage<S: Store> {
    /// The machine itself.
    pub machine: Machine,
    /// Takes the calls of the machine, at once.
    pub store: S,
    /// The clock.
    pub now: Now,
    /// Everything that came out, in order.
    pub effects: Vec<Effect>,
    log: String,
    requests: u64,
    stopped: bool,
}

/// The noon from which every stage counts.
const START: Now = Now::new(Wall::new(1_000_000), Mono::new(1_000));

impl<S: Store> Stage<S> {
    /// A stage with this many slots.
    pub fn new(store: S, slots: usize) -> Self {
        Self::with(store, config(slots))
    }

    /// A stage with this configuration.
    pub fn with(store: S, config: Config) -> Self {
        let machine = Machine::new(config);
        let (effects, log) = (Vec::new(), String::new());
        Self { machine, store, now: START, effects, log, requests: 0, stopped: false }
    }

    /// The text so far.
    pub fn log(&self) -> &str {
        &self.log
    }

    /// Writes a remark.
    pub fn say(&mut self, text: &str) {
        let _ = writeln!(self.log, "-- {text}");
    }

    // What goes in.

    /// Feeds an input.
    pub fn input(&mut self, input: Input) {
        let _ = writeln!(self.log, "{} > {}", self.clock(), input_text(&input));
        self.machine.handle(self.now, input);
        self.drain_effects();
    }

    /// Makes a request and returns its id.
    pub fn request(&mut self, request: Request) -> RequestId {
        self.requests += 1;
        let id = RequestId(self.requests);
        self.input(Input::Request(id, request));
        id
    }

    /// Enqueues a job.
    pub fn enqueue(&mut self, new: NewJob) -> RequestId {
        self.request(Request::Enqueue(new))
    }

    /// Polls for one job of any kind in the default queue.
    pub fn poll(&mut self, worker: &str, wait: Millis) -> RequestId {
        let queues = Queues::only(vec![QueueName::default()]);
        self.poll_with(worker, Demand { queues, ..Demand::ALL }, wait)
    }

    /// Polls for one job of this demand, without waiting.
    pub fn poll_for(&mut self, worker: &str, demand: Demand) -> RequestId {
        self.poll_with(worker, demand, Millis::ZERO)
    }

    fn poll_with(&mut self, worker: &str, demand: Demand, wait: Millis) -> RequestId {
        let worker = Worker { demand, ..worker_named(worker, WorkerKind::Remote) };
        self.request(Request::Poll(Poll { worker, wait, length: None }))
    }

    /// An operator's command.
    pub fn admin(&mut self, command: Admin) -> RequestId {
        self.request(Request::Admin(command))
    }

    /// A local run ends well.
    pub fn complete(&mut self, token: &str) {
        let verdict = Verdict::Complete { result: None };
        self.input(Input::Report { token: self::token(token), verdict });
    }

    // What the driver does.

    /// Takes the next call of the store, if there is one.
    pub fn take_call(&mut self) -> Option<StoreCall> {
        let call = self.machine.poll_store(self.now);
        if let Some(call) = &call {
            let _ = writeln!(self.log, "{} = {}", self.clock(), call_text(call));
        }
        self.drain_effects();
        call
    }

    /// Makes a call and feeds its answer.
    pub fn make_call(&mut self, call: StoreCall) {
        match call {
            StoreCall::Commit(batch) => {
                let result = self.store.commit(self.now.wall, &batch);
                if let Err(error) = &result {
                    let _ = writeln!(self.log, "{} ! {error}", self.clock());
                }
                self.machine.handle_committed(self.now, batch, result);
            }
            StoreCall::WasCommitted(batch) => {
                let result = self.store.was_committed(batch);
                let _ = writeln!(self.log, "{} ! committed: {result:?}", self.clock());
                self.machine.handle_was_committed(self.now, batch, result);
            }
            StoreCall::Reopen => {
                let result = self.store.reopen();
                self.machine.handle_reopened(self.now, result);
            }
            StoreCall::News(held) => {
                let result = self.store.news(&held);
                let _ = writeln!(self.log, "{} ! news: {result:?}", self.clock());
                self.machine.handle_news(self.now, result);
            }
            StoreCall::Bulk => {
                let result = self.store.plan_bulk();
                self.machine.handle_bulk(self.now, result);
            }
        }
        self.drain_effects();
    }

    /// Makes calls until there is none. More than a thousand in a row are a livelock.
    pub fn settle(&mut self) {
        for _ in 0..1_000 {
            match self.take_call() {
                Some(call) => self.make_call(call),
                None => return,
            }
        }
        panic!("the machine makes calls without end:\n{}", self.log);
    }

    /// Lets time pass, waking whenever the machine wants to be woken.
    pub fn pass(&mut self, length: Millis) {
        let end = self.now.mono.plus(length);
        for _ in 0..10_000 {
            let wakeup = self.machine.poll_timeout().filter(|wakeup| wakeup.at <= end);
            let Some(wakeup) = wakeup else {
                self.jump(end);
                return;
            };
            self.jump(wakeup.at);
            let _ = writeln!(self.log, "{} * {:?}", self.clock(), wakeup.reason);
            self.settle();
        }
        panic!("the machine wakes without end:\n{}", self.log);
    }

    /// Lets time pass while the driver is stuck in a call; the next one, if there is one.
    pub fn idle(&mut self, length: Millis) -> Option<StoreCall> {
        self.jump(self.now.mono.plus(length));
        self.take_call()
    }

    /// Steps the wall clock by this number of milliseconds; no time passes.
    pub fn step_wall(&mut self, by: i64) {
        self.now.wall = Wall::new(self.now.wall.get().saturating_add(by));
        let _ = writeln!(self.log, "{} ~ the wall clock is set by {by} ms", self.clock());
    }

    /// Takes the effects so far.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// The answer to a request, if it was given; each is given once.
    pub fn answer(&self, request: RequestId) -> Option<&Answer> {
        let mut answers = self.effects.iter().filter_map(|effect| match effect {
            Effect::Reply { request: to, answer } if *to == request => Some(answer),
            _ => None,
        });
        let answer = answers.next();
        assert!(answers.next().is_none(), "{request:?} was answered twice");
        answer
    }

    /// The leases of the jobs started so far.
    pub fn started(&self) -> Vec<LeaseToken> {
        let runs = self.effects.iter().filter_map(|effect| match effect {
            Effect::Run { run, .. } => Some(run.job.token()),
            _ => None,
        });
        runs.collect()
    }

    fn jump(&mut self, to: Mono) {
        let passed = to.since(self.now.mono);
        self.now = Now::new(self.now.wall.plus(passed), to.max(self.now.mono));
    }

    fn drain_effects(&mut self) {
        let phase = self.machine.phase();
        while let Some(effect) = self.machine.poll_effect() {
            let _ = writeln!(self.log, "{} < {}", self.clock(), effect_text(&effect));
            self.effects.push(effect);
        }
        if phase == Phase::Stopped && !self.stopped {
            self.stopped = true;
            let report = self.machine.shutdown_report();
            let _ = writeln!(self.log, "{} < {report:?}", self.clock());
            let _ = writeln!(self.log, "{} < stopped", self.clock());
        }
    }

    fn clock(&self) -> String {
        format!("{:>6}", self.now.mono.since(START.mono).get())
    }
}

/// The usual configuration of a stage.
pub fn config(slots: usize) -> Config {
    Config::new(ProcessId(1), worker_named("here", WorkerKind::Local), slots)
}

/// A worker of this name.
pub fn worker_named(name: &str, kind: WorkerKind) -> Worker {
    let id = WorkerId::new(name).expect("test names are names");
    Worker::new(id, "host", kind)
}

/// A job of the default kind and queue.
pub fn job() -> NewJob {
    NewJob::new(Kind::default(), Payload::null())
}

/// A token from its text.
pub fn token(text: &str) -> LeaseToken {
    text.parse().expect("test tokens are tokens")
}

fn input_text(input: &Input) -> String {
    match input {
        Input::Request(id, request) => format!("request {}: {}", id.0, request_text(request)),
        Input::Gone(id) => format!("request {} is gone", id.0),
        Input::Report { token, verdict } => format!("run {token} ends: {}", verdict_text(verdict)),
        Input::Stopped { token, .. } => format!("run {token} was stopped"),
        other => format!("{other:?}"),
    }
}

fn request_text(request: &Request) -> String {
    match request {
        Request::Enqueue(_) => "enqueue".into(),
        Request::EnqueueMany(jobs) => format!("enqueue {} jobs", jobs.len()),
        Request::Settle(Settle { token, verdict }) => format!("{token} {}", verdict_text(verdict)),
        Request::SettleMany(settles) => format!("settle {}", settles.len()),
        Request::Heartbeat(heartbeat) => format!("heartbeat {}", heartbeat.token),
        Request::Admin(command) => format!("{command:?}"),
        Request::Poll(poll) => format!("{} polls, waits {}", poll.worker.id, poll.wait),
    }
}

fn verdict_text(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Complete { .. } => "complete".into(),
        Verdict::Fail(failure) => format!("fail {:?}", failure.error),
        Verdict::Snooze { delay } => format!("snooze {}", delay.millis()),
        Verdict::Release => "release".into(),
    }
}

fn call_text(call: &StoreCall) -> String {
    match call {
        StoreCall::Commit(batch) => format!("commit {}: {}", batch.id.seq, batch_text(batch)),
        StoreCall::WasCommitted(batch) => format!("was batch {} committed?", batch.seq),
        StoreCall::Reopen => "reopen the store".into(),
        StoreCall::News(_) => "news?".into(),
        StoreCall::Bulk => "what is next of the bulk actions?".into(),
    }
}

fn batch_text(batch: &Batch) -> String {
    let mut parts = Vec::new();
    let settles = batch.settles.iter();
    parts.extend(
        settles.map(|settle| format!("{} {}", settle.token, verdict_text(&settle.verdict))),
    );
    parts.extend(batch.heartbeats.iter().map(|heartbeat| format!("heartbeat {}", heartbeat.token)));
    parts.extend(batch.admin.iter().map(admin_text));
    parts.extend(
        batch.bulk.iter().map(|step| format!("bulk {}: {} jobs", step.bulk, step.jobs.len())),
    );
    if !batch.enqueues.is_empty() {
        parts.push(format!("enqueue {}", batch.enqueues.len()));
    }
    parts.extend(batch.reap.map(|_| match batch.clock.trusted_since {
        None => "reap".into(),
        Some(since) => format!("reap, clock trusted since {since}"),
    }));
    parts.extend(batch.promote.map(|_| "promote".into()));
    parts.extend(batch.purge.map(|_| "purge".into()));
    parts.extend(batch.queue_sweep.as_ref().map(|_| "sweep queues".into()));
    parts.extend((!batch.figures.is_empty()).then(|| "add figures".into()));
    for claim in &batch.claims {
        let takers = claim.takers.iter().map(|taker| format!("{}×{}", taker.worker, taker.max));
        parts.push(format!("claim for {}", takers.collect::<Vec<_>>().join(", ")));
    }
    if parts.is_empty() { "nothing, what is due?".into() } else { parts.join(" | ") }
}

fn admin_text(command: &Admin) -> String {
    match command {
        Admin::SeeWorker(Worker { id, slots, presence, .. }) => {
            format!("see {id}, {slots} slots, every {presence}")
        }
        other => format!("{other:?}"),
    }
}

fn effect_text(effect: &Effect) -> String {
    match effect {
        Effect::Reply { request, answer } => {
            format!("reply {}: {}", request.0, answer_text(answer))
        }
        Effect::Run { run, .. } => {
            format!("run {} (attempt {})", run.job.token(), run.job.attempts)
        }
        Effect::Extended { token, stop_at } => format!("{token} may run until {}", stop_at.get()),
        Effect::Stop { token, reason } => format!("stop {token}: {reason:?}"),
        Effect::StopAsked => "this worker is asked to stop".into(),
        Effect::Changed { jobs, queues } => {
            let name = |state: Option<windlass_core::StateName>| {
                state.map_or("nothing".into(), |state| state.to_string())
            };
            let jobs = jobs.iter().map(|c| format!("{} {}→{}", c.id, name(c.from), name(c.to)));
            let queues = queues.iter().map(|queue| format!("queue {}", queue.name));
            format!("changed: {}", jobs.chain(queues).collect::<Vec<_>>().join(", "))
        }
    }
}

fn answer_text(answer: &Answer) -> String {
    match answer {
        Answer::Enqueued(Ok(receipt)) if receipt.duplicate => {
            format!("duplicate of {}", receipt.id)
        }
        Answer::Enqueued(Ok(receipt)) => format!("stored as {}", receipt.id),
        Answer::Settled(Ok(state)) => format!("now {state}"),
        Answer::Settled(Err(refused)) => refused.to_string(),
        Answer::Admin(Ok(AdminDone::Job(job))) => format!("now {}", job.state.name()),
        Answer::Admin(Ok(AdminDone::Queue(queue))) => {
            format!("queue {} paused: {}", queue.name, queue.is_paused())
        }
        Answer::Jobs(runs) => {
            let tokens = runs.iter().map(|run| run.job.token().to_string());
            format!("jobs [{}]", tokens.collect::<Vec<_>>().join(", "))
        }
        Answer::Refused(refused) => format!("refused: {refused}"),
        other => format!("{other:?}"),
    }
}
