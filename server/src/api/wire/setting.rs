//! Settings as clients see and set them.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::problem::Problem;
use crate::settings::{self, Levels, TABLE, Value};

/// All settings, in the order of their table.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SettingList {
    pub(crate) settings: Vec<Setting>,
    /// Settings in the store that this version cannot use.
    pub(crate) ignored: Vec<Ignored>,
}

impl SettingList {
    pub(crate) fn of(levels: &Levels) -> Self {
        let ignored = levels.ignored.iter().map(|row| Ignored {
            name: row.name.clone(),
            value: row.value.clone(),
            reason: row.reason.clone(),
        });
        Self {
            settings: TABLE.iter().map(|setting| Setting::of(setting, levels)).collect(),
            ignored: ignored.collect(),
        }
    }
}

/// A setting and its value in the process that answers.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Setting {
    pub(crate) name: Cow<'static, str>,
    pub(crate) value: String,
    /// `flag`, `environment`, `store` or `default`.
    pub(crate) origin: Cow<'static, str>,
    pub(crate) default: String,
    /// Value in the store, even if a flag or the environment overrides it.
    pub(crate) stored: Option<String>,
    /// `integer`, `duration`, `decimal` or `choice`.
    #[serde(rename = "type")]
    pub(crate) kind: Cow<'static, str>,
    /// Allowed values, as text.
    pub(crate) allowed: String,
    /// The environment variable that sets it.
    pub(crate) environment: String,
    pub(crate) help: Cow<'static, str>,
}

impl Setting {
    pub(crate) fn of(setting: &settings::Setting, levels: &Levels) -> Self {
        let level = levels.of(setting.id);
        Self {
            name: setting.name.into(),
            value: level.value.to_string(),
            origin: level.origin.as_str().into(),
            default: setting.default.to_string(),
            stored: level.stored.map(|value| value.to_string()),
            kind: setting.kind.name().into(),
            allowed: setting.kind.to_string(),
            environment: setting.variable(),
            help: setting.help.into(),
        }
    }
}

/// A setting in the store that is not used.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "IgnoredSetting")]
pub(crate) struct Ignored {
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) reason: String,
}

/// A value for a setting.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSetting {
    /// As it is written on the command line, like `5`, `30s`, `0.25` or `off`.
    value: Text,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Text {
    Text(String),
    Number(serde_json::Number),
}

impl NewSetting {
    pub(crate) fn check(&self, setting: &settings::Setting) -> Result<Value, Problem> {
        let text = match &self.value {
            Text::Text(text) => text.clone(),
            Text::Number(number) => number.to_string(),
        };
        setting.read(&text).map_err(|wrong| Problem::field("/value", wrong))
    }
}
