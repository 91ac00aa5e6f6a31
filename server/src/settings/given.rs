//! Settings given to this process by flag or environment: they do not change while it runs.

use super::levels::Origin;
use super::table::{Id, Setting, TABLE};
use super::value::Value;

/// Values given to this process; they win over the store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Given(Vec<(Id, Value, Origin)>);

impl Given {
    /// The flags, and the environment where no flag was given. An invalid variable is refused; an
    /// empty one counts as not set.
    pub(crate) fn new(
        flags: &[(Id, Value)],
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let mut given: Vec<(Id, Value, Origin)> =
            flags.iter().map(|(id, value)| (*id, *value, Origin::Flag)).collect();
        for setting in &TABLE {
            let variable = setting.variable();
            let text = environment(&variable).filter(|text| !text.trim().is_empty());
            let Some(text) = text else { continue };
            let value = setting.read(&text).map_err(|wrong| format!("{variable}: {wrong}"))?;
            if !given.iter().any(|(id, ..)| *id == setting.id) {
                given.push((setting.id, value, Origin::Environment));
            }
        }
        Ok(Self(given))
    }

    /// The given value of this setting, with its origin.
    pub(crate) fn of(&self, setting: &Setting) -> Option<(Value, Origin)> {
        let found = self.0.iter().find(|(id, ..)| *id == setting.id);
        found.map(|(_, value, origin)| (*value, *origin))
    }

    /// Reads the environment of this process.
    pub(crate) fn from_environment(flags: &[(Id, Value)]) -> Result<Self, String> {
        Self::new(flags, |name| std::env::var_os(name)?.into_string().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_wins_over_the_environment_and_a_bad_variable_is_refused_by_name() {
        let environment = |name: &str| match name {
            "WINDLASS_WORKERS" => Some("3".to_owned()),
            "WINDLASS_MAX_RETRIES" => Some("7".to_owned()),
            "WINDLASS_KEEP_DONE" => Some(String::new()),
            _ => None,
        };
        let flags = [(Id::Workers, Value::Whole(5))];
        let given = Given::new(&flags, environment).unwrap();
        let of = |id: Id| given.of(&TABLE[id as usize]);
        assert_eq!(of(Id::Workers), Some((Value::Whole(5), Origin::Flag)));
        assert_eq!(of(Id::MaxRetries), Some((Value::Whole(7), Origin::Environment)));
        assert_eq!(of(Id::KeepDone), None);
        let refused = Given::new(&[], |_| Some("1001".into())).unwrap_err();
        assert!(refused.starts_with("WINDLASS_"), "{refused}");
        assert!(refused.contains("must be"), "{refused}");
    }
}
