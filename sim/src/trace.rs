//! The trace of a run: always as a hash, by which runs are compared, and as text on request. In the
//! text `#17` is a job, `#17.2` its lease with epoch 2.

/// The record of a run.
#[derive(Debug)]
pub struct Trace {
    hash: u64,
    lines: Option<Vec<String>>,
    at: u64,
}

impl Trace {
    /// An empty record; `with_text` keeps the lines too.
    pub fn new(with_text: bool) -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, lines: with_text.then(Vec::new), at: 0 }
    }

    /// Sets the time of what follows.
    pub fn at(&mut self, at: u64) {
        self.at = at;
    }

    /// Adds an event: numbers to the hash, words to the text.
    pub fn note(&mut self, numbers: &[u64], words: impl FnOnce() -> String) {
        self.add(self.at);
        for number in numbers {
            self.add(*number);
        }
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>9} {}", self.at, words()));
        }
    }

    /// The hash of everything so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The lines so far; empty if no text is kept.
    pub fn lines(&self) -> &[String] {
        self.lines.as_deref().unwrap_or(&[])
    }

    fn add(&mut self, number: u64) {
        self.hash = (self.hash ^ number).wrapping_mul(0x9fb2_1c65_1e98_df25).rotate_left(29);
    }
}

/// The lines that name a job.
pub fn history(lines: &[String], job: u64) -> Vec<&String> {
    let name = format!("#{job}");
    let is_about = |line: &&String| {
        line.match_indices(&name).any(|(at, _)| {
            let next = line[at + name.len()..].chars().next();
            !next.is_some_and(|c| c.is_ascii_digit())
        })
    };
    lines.iter().filter(is_about).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_tells_order_time_and_numbers_apart() {
        let hash = |notes: &[(u64, u64)]| {
            let mut trace = Trace::new(false);
            for (at, number) in notes {
                trace.at(*at);
                trace.note(&[*number], String::new);
            }
            trace.hash()
        };
        assert_eq!(hash(&[(1, 2), (3, 4)]), hash(&[(1, 2), (3, 4)]));
        assert_ne!(hash(&[(1, 2), (3, 4)]), hash(&[(3, 4), (1, 2)]));
        assert_ne!(hash(&[(1, 2)]), hash(&[(1, 3)]));
    }

    #[test]
    fn the_history_of_a_job_leaves_out_jobs_whose_number_only_begins_the_same() {
        let lines = ["1 run #17.2", "2 run #170.1", "3 settle #17: done"].map(String::from);
        assert_eq!(history(&lines, 17), [&lines[0], &lines[2]]);
    }
}
