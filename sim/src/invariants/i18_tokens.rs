//! I18: no lease token (job, epoch) is given out twice, over all processes and crashes; and no
//! local handler is started twice with one.

use std::collections::BTreeSet;

use windlass_core::LeaseToken;

use super::Seen;
use crate::ledger::Ledger;

/// Compares each token with every one that was given out before.
pub(super) fn check(ledger: &Ledger, seen: &Seen<'_>) -> Option<String> {
    match seen {
        Seen::Commit(commit) => {
            let mut tokens: BTreeSet<LeaseToken> = BTreeSet::new();
            let leased = commit.out.claims.iter().flat_map(|claimed| &claimed.jobs);
            let mut given = leased.map(|leased| leased.job.token());
            let again = given.find(|token| ledger.tokens.contains(token) || !tokens.insert(*token));
            again.map(|token| format!("#{token} was given out twice"))
        }
        Seen::Started(started) => {
            let token = started.run.job.token();
            let again = ledger.started.contains(&token);
            again.then(|| format!("#{token} was started twice"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use windlass_core::store::{Claimed, Leased};

    use super::super::testing::{Scene, leased};

    #[test]
    fn a_token_that_is_given_out_again_is_caught() {
        let mut scene = Scene::new();
        let detail = leased(1, 1, 5_000);
        let token = detail.job.token();
        let first = Leased { taker: 0, job: detail.job, payload: detail.payload };
        scene.out.claims.push(Claimed { jobs: vec![first], dry: false, cut: false });
        assert!(scene.breaks_not("I18", scene.story(1, None, vec![])));
        scene.ledger.tokens.insert(token);
        assert!(scene.breaks("I18", scene.story(1, None, vec![])));
    }
}
