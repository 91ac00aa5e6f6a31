//! Commits at the same time that set the same server setting.

use windlass_core::store::{Admin, AdminRefused, Batch, ExpectedSetting};

use crate::concurrent::{ConcurrentSubject, Order, commit_both, in_both_orders};
use crate::fixture::{World, setting, value};

fn set_to(text: Option<&str>) -> Admin {
    Admin::set_setting(setting("s"), text.map(value))
}

fn set_from(before: Option<&str>, after: &str) -> Admin {
    let expected = ExpectedSetting::Exactly(before.map(value));
    Admin::SetSetting { key: setting("s"), value: Some(value(after)), expected }
}

/// The setting is there before, or made by both.
pub fn of_two_changes_of_the_same_server_setting_one_is_refused<S: ConcurrentSubject>() {
    for before in [Some("0"), None] {
        let replace = |after: &'static str| {
            move |batch: &mut Batch| batch.admin.push(set_from(before, after))
        };
        in_both_orders(|order| {
            let mut world = World::<S>::new();
            world.commit(|batch| batch.admin.push(set_to(before)));
            let (a, b) = commit_both(&mut world, order, replace("1"), replace("2"));
            let (kept, won, lost) = match order {
                Order::FirstLeads => ("1", a, b),
                Order::SecondLeads => ("2", b, a),
            };
            assert!(won.admin[0].is_ok(), "{:?}", won.admin);
            let (key, now) = (setting("s"), Some(value(kept)));
            assert_eq!(lost.admin[0], Err(AdminRefused::SettingChanged { key, value: now }));
            assert_eq!(world.dump().settings, [(setting("s"), value(kept))]);
        });
    }
}

/// One that expects a value and one that does not care: what commits first is seen by the other.
pub fn a_server_setting_is_never_compared_with_a_value_that_is_being_replaced<
    S: ConcurrentSubject,
>() {
    for before in [Some("0"), None] {
        let expects = |batch: &mut Batch| batch.admin.push(set_from(before, "1"));
        let replaces = |batch: &mut Batch| batch.admin.push(set_to(Some("2")));
        in_both_orders(|order| {
            let mut world = World::<S>::new();
            world.commit(|batch| batch.admin.push(set_to(before)));
            let (a, b) = commit_both(&mut world, order, expects, replaces);
            assert!(b.admin[0].is_ok(), "{:?}", b.admin);
            assert_eq!(a.admin[0].is_ok(), order == Order::FirstLeads, "{:?}", a.admin);
            assert_eq!(world.dump().settings, [(setting("s"), value("2"))]);
        });
    }
}
