//! The settings in effect, from four levels: flags, environment, store, defaults.

use windlass_core::store::{Retention, is_seal};
use windlass_core::{
    JobTimeout, LeaseLength, MaxRetries, Millis, Policy, RetryPolicy, SettingKey, SettingValue,
    Strategy,
};

use super::given::Given;
use super::table::{Id, TABLE, find};
use super::value::Value;

/// The source of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Flag,
    Environment,
    Store,
    Default,
}

impl Origin {
    /// The name used in JSON.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Flag => "flag",
            Self::Environment => "environment",
            Self::Store => "store",
            Self::Default => "default",
        }
    }
}

/// One setting in effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Level {
    pub(crate) value: Value,
    pub(crate) origin: Origin,
    /// The value in the store, also where a flag or variable wins over it.
    pub(crate) stored: Option<Value>,
}

/// A setting in the store that cannot be used here: a newer version may have written it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ignored {
    pub(crate) name: String,
    pub(crate) value: String,
    /// A sentence for the log.
    pub(crate) reason: String,
}

/// All settings in effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Levels {
    /// In the order of the table.
    settings: Vec<Level>,
    pub(crate) ignored: Vec<Ignored>,
}

impl Levels {
    /// Given values win over those of the store, these over the defaults.
    pub(crate) fn new(given: &Given, stored: &[(SettingKey, SettingValue)]) -> Self {
        let defaults = TABLE.iter().map(|setting| match given.of(setting) {
            Some((value, origin)) => Level { value, origin, stored: None },
            None => Level { value: setting.default, origin: Origin::Default, stored: None },
        });
        let mut levels = Self { settings: defaults.collect(), ignored: Vec::new() };
        for (key, value) in stored.iter().filter(|(key, _)| !is_seal(key)) {
            levels.keep(key.as_str(), value.as_str());
        }
        levels
    }

    fn keep(&mut self, name: &str, text: &str) {
        // Only the exact name; other spellings are for the command line.
        let setting = find(name).ok().filter(|setting| setting.name == name);
        let value = match setting {
            Some(setting) => setting.read(text).map(|value| (setting.id, value)),
            None => Err(format!("this version has no setting {name}")),
        };
        match value {
            Ok((id, value)) => {
                let level = &mut self.settings[id as usize];
                level.stored = Some(value);
                if level.origin == Origin::Default {
                    (level.value, level.origin) = (value, Origin::Store);
                }
            }
            Err(reason) => {
                let (name, value) = (name.into(), text.into());
                self.ignored.push(Ignored { name, value, reason });
            }
        }
    }

    /// Whether any value differs.
    pub(crate) fn changed(&self, other: &Self) -> bool {
        let pairs = self.settings.iter().zip(&other.settings);
        pairs.into_iter().any(|(one, other)| one.value != other.value)
    }

    pub(crate) fn of(&self, id: Id) -> Level {
        self.settings[id as usize]
    }

    fn whole(&self, id: Id) -> u64 {
        match self.of(id).value {
            Value::Whole(number) => number,
            other => unreachable!("{id:?} is a whole number by the table, not {other:?}"),
        }
    }

    fn decimal(&self, id: Id) -> u32 {
        match self.of(id).value {
            Value::Decimal(number) => number,
            other => unreachable!("{id:?} is a decimal number by the table, not {other:?}"),
        }
    }

    fn maybe_time(&self, id: Id) -> Option<Millis> {
        match self.of(id).value {
            Value::Time(time) => Some(time),
            Value::Off => None,
            other => unreachable!("{id:?} is a time by the table, not {other:?}"),
        }
    }

    fn time(&self, id: Id) -> Millis {
        self.maybe_time(id).expect("the table lets only times be off that are asked for as such")
    }

    /// Defaults of jobs.
    pub(crate) fn policy(&self) -> Policy {
        const WITHIN: &str = "the table has the bounds of core";
        let retries = u32::try_from(self.whole(Id::MaxRetries)).expect(WITHIN);
        let timeout = self.maybe_time(Id::JobTimeout);
        Policy {
            max_retries: MaxRetries::new(retries).expect(WITHIN),
            timeout: timeout.map(|time| JobTimeout::new(time.get()).expect(WITHIN)),
            visibility_timeout: LeaseLength::new(self.time(Id::VisibilityTimeout).get())
                .expect(WITHIN),
            retry: RetryPolicy::new(
                self.strategy(),
                self.time(Id::RetryInitial),
                self.time(Id::RetryCap),
                self.decimal(Id::RetryJitter),
            )
            .expect(WITHIN),
            idempotency_window: self.time(Id::IdempotencyWindow),
            max_queues: usize::try_from(self.whole(Id::MaxQueues)).expect(WITHIN),
            max_error_groups: windlass_core::limits::ERROR_GROUPS,
        }
    }

    fn strategy(&self) -> Strategy {
        match self.of(Id::RetryStrategy).value {
            Value::Choice("fixed") => Strategy::Fixed,
            Value::Choice("linear") => Strategy::Linear,
            _ => Strategy::Exponential { factor: self.decimal(Id::RetryFactor) },
        }
    }

    pub(crate) fn retention(&self) -> Retention {
        Retention {
            done: self.maybe_time(Id::KeepDone),
            failed: self.maybe_time(Id::KeepFailed),
            cancelled: self.maybe_time(Id::KeepCancelled),
        }
    }

    /// Number of jobs that run at once, by the setting of this process.
    pub(crate) fn slots(&self, id: Id) -> usize {
        usize::try_from(self.whole(id)).unwrap_or(usize::MAX)
    }

    /// Interval of the heartbeats of this process.
    pub(crate) fn heartbeat(&self) -> Millis {
        self.time(Id::WorkerHeartbeat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(rows: &[(&str, &str)]) -> Vec<(SettingKey, SettingValue)> {
        let row = |(key, value): &(&str, &str)| {
            (SettingKey::new(key).unwrap(), SettingValue::new(value).unwrap())
        };
        rows.iter().map(row).collect()
    }

    #[test]
    fn the_defaults_of_the_table_are_those_of_core() {
        let levels = Levels::new(&Given::default(), &[]);
        assert_eq!(levels.policy(), Policy::default());
        assert_eq!(levels.retention(), Retention::USUAL);
        let [done, failed, cancelled] = [7, 30, 7].map(|days| Some(Millis::seconds(days * 86_400)));
        assert_eq!(levels.retention(), Retention { done, failed, cancelled });
        for setting in &TABLE {
            assert_eq!(levels.of(setting.id).origin, Origin::Default, "{}", setting.name);
        }
    }

    /// Every setting, at every level.
    #[test]
    fn a_flag_wins_over_the_environment_the_store_and_the_default_for_every_setting() {
        for setting in &TABLE {
            // Two values within the bounds that differ from the default.
            let [one, other] = two_values(setting);
            let rows = stored(&[(setting.name, &one)]);
            let levels = Levels::new(&Given::default(), &rows);
            let level = levels.of(setting.id);
            assert_eq!((level.value.to_string(), level.origin), (one.clone(), Origin::Store));
            let variable = setting.variable();
            let environment = |name: &str| (name == variable).then(|| other.clone());
            let given = Given::new(&[], environment).unwrap();
            let level = Levels::new(&given, &rows).of(setting.id);
            assert_eq!((level.value.to_string(), level.origin), (other, Origin::Environment));
            assert_eq!(level.stored.map(|value| value.to_string()), Some(one));
            let flag = [(setting.id, setting.default)];
            let given = Given::new(&flag, environment_of_nothing).unwrap();
            let level = Levels::new(&given, &rows).of(setting.id);
            assert_eq!((level.value, level.origin), (setting.default, Origin::Flag));
        }
    }

    fn environment_of_nothing(_: &str) -> Option<String> {
        None
    }

    fn two_values(setting: &super::super::Setting) -> [String; 2] {
        let candidates = ["1", "7", "2s", "3s", "0.5", "1.5", "3", "fixed", "linear"];
        let mut fit = candidates.into_iter().filter(|text| {
            let value = setting.read(text);
            value.is_ok_and(|value| value != setting.default && value.to_string() == *text)
        });
        [(); 2].map(|()| fit.next().expect("two of them fit").to_owned())
    }

    #[test]
    fn what_a_newer_version_has_kept_is_ignored_and_reported() {
        let rows = stored(&[("max_retries", "many"), ("colour", "red"), ("workers", "4")]);
        let levels = Levels::new(&Given::default(), &rows);
        assert_eq!(levels.policy(), Policy::default());
        assert_eq!(levels.slots(Id::Workers), 4);
        let names: Vec<&str> = levels.ignored.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["max_retries", "colour"]);
        assert!(levels.ignored[0].reason.contains("between 0 and 1000"));
    }

    #[test]
    fn every_part_of_the_policy_comes_from_its_setting() {
        let rows = stored(&[
            ("max_retries", "9"),
            ("retry_strategy", "linear"),
            ("retry_initial", "2s"),
            ("retry_cap", "3s"),
            ("retry_jitter", "0.5"),
            ("job_timeout", "4s"),
            ("visibility_timeout", "5s"),
            ("idempotency_window", "6s"),
            ("max_queues", "7"),
            ("keep_done", "7s"),
            ("keep_failed", "8s"),
            ("keep_cancelled", "9s"),
        ]);
        let levels = Levels::new(&Given::default(), &rows);
        let (initial, cap) = (Millis::seconds(2), Millis::seconds(3));
        let wanted = Policy {
            max_retries: MaxRetries::new(9).unwrap(),
            timeout: Some(JobTimeout::new(4_000).unwrap()),
            visibility_timeout: LeaseLength::new(5_000).unwrap(),
            retry: RetryPolicy::new(Strategy::Linear, initial, cap, 500).unwrap(),
            idempotency_window: Millis::seconds(6),
            max_queues: 7,
            max_error_groups: windlass_core::limits::ERROR_GROUPS,
        };
        assert_eq!(levels.policy(), wanted);
        let [done, failed, cancelled] = [7, 8, 9].map(|seconds| Some(Millis::seconds(seconds)));
        assert_eq!(levels.retention(), Retention { done, failed, cancelled });
        let rows = stored(&[("retry_strategy", "exponential"), ("retry_factor", "3")]);
        let retry = Levels::new(&Given::default(), &rows).policy().retry;
        assert_eq!(retry.strategy(), Strategy::Exponential { factor: 3_000 });
    }
}
