//! Settings as flags of a command: made from the table, so that `--help` shows default, variable
//! and bounds of each.

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};

use super::table::{Id, TABLE, find};
use super::value::Value;

/// The settings that were given as flags.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flags(pub(crate) Vec<(Id, Value)>);

/// Whether the setting is a flag of `serve`; that of worker processes has a flag of its own.
fn is_flag(id: Id) -> bool {
    id != Id::WorkerConcurrency
}

/// The parser of this setting's value, for a flag with another name.
pub(crate) fn parser(name: &'static str) -> impl Fn(&str) -> Result<Value, String> + Clone {
    move |text| find(name)?.kind.read(text)
}

fn arg(name: &'static str) -> Option<Arg> {
    let setting = find(name).ok()?;
    let help =
        format!("{} [default: {}] [env: {}]", setting.help, setting.default, setting.variable());
    let long = format!("{help}\n\nIt is {}.", setting.kind);
    let arg = Arg::new(name).long(setting.flag()).value_name("VALUE").help(help).long_help(long);
    Some(arg.value_parser(parser(name)).help_heading("Settings"))
}

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        let flags = TABLE.iter().filter(|setting| is_flag(setting.id));
        command.args(flags.filter_map(|setting| arg(setting.name)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut flags = Vec::new();
        for setting in TABLE.iter().filter(|setting| is_flag(setting.id)) {
            let value = matches.try_get_one::<Value>(setting.name);
            let value = value.map_err(|error| Error::raw(ErrorKind::InvalidValue, error))?;
            flags.extend(value.map(|value| (setting.id, *value)));
        }
        Ok(Self(flags))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
