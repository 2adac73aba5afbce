//! Judges a run by what its processes logged and by every write that Consul kept.

use std::{collections::BTreeMap, time::Duration};

use super::wire::Mishap;

/// A line of a process's log. Times are of the machine's clock, which all share.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Line {
    pub(crate) at: Duration,
    pub(crate) term: u64,
    pub(crate) what: What,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum What {
    /// It leads, and may believe so until then without hearing of anyone.
    Leads { until: Duration },
    /// It has noticed that it leads no more.
    Ended,
    /// A write of this number was acknowledged.
    Wrote(u64),
    /// A write of this number was called refused, so that nothing was written.
    Refused(u64),
    /// It did something that Consul cannot fence, such as a step of an apply.
    Acted,
    /// This happened to its next write.
    Struck(Mishap),
}

impl Line {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let (at, term) = (Duration::from_nanos(number()?), number()?);
        let what = match words.next()? {
            "leads" => What::Leads { until: Duration::from_nanos(words.next()?.parse().ok()?) },
            "ended" => What::Ended,
            "wrote" => What::Wrote(words.next()?.parse().ok()?),
            "refused" => What::Refused(words.next()?.parse().ok()?),
            "acted" => What::Acted,
            "paused" => {
                What::Struck(Mishap::Pause(Duration::from_millis(words.next()?.parse().ok()?)))
            }
            "unanswered" => What::Struck(Mishap::LostAnswer),
            _ => return None,
        };
        Some(Self { at, term, what })
    }

    pub(crate) fn text(&self) -> String {
        let (at, term) = (self.at.as_nanos(), self.term);
        match self.what {
            What::Leads { until } => format!("{at} {term} leads {}\n", until.as_nanos()),
            What::Ended => format!("{at} {term} ended\n"),
            What::Wrote(number) => format!("{at} {term} wrote {number}\n"),
            What::Refused(number) => format!("{at} {term} refused {number}\n"),
            What::Acted => format!("{at} {term} acted\n"),
            What::Struck(Mishap::Pause(time)) => {
                format!("{at} {term} paused {}\n", time.as_millis())
            }
            What::Struck(Mishap::LostAnswer) => format!("{at} {term} unanswered\n"),
        }
    }
}

/// Everything that is known of a run.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// By process, in the order of its log.
    pub(crate) logs: BTreeMap<String, Vec<Line>>,
    /// Term, number and index of every write that is in Consul.
    pub(crate) writes: Vec<(u64, u64, u64)>,
    /// When which process was killed.
    pub(crate) deaths: Vec<(String, Duration)>,
    /// When Consul was away.
    pub(crate) outages: Vec<(Duration, Duration)>,
}

/// A time in which a process believed that it leads.
#[derive(Debug, Clone)]
pub(crate) struct Belief {
    pub(crate) process: String,
    pub(crate) term: u64,
    pub(crate) from: Duration,
    pub(crate) to: Duration,
}

impl History {
    /// All beliefs, in the order of their beginnings.
    pub(crate) fn beliefs(&self) -> Vec<Belief> {
        let mut beliefs = Vec::new();
        for (process, lines) in &self.logs {
            let mut by_term: BTreeMap<u64, Belief> = BTreeMap::new();
            for line in lines {
                let fresh = || Belief {
                    process: process.clone(),
                    term: line.term,
                    from: line.at,
                    to: line.at,
                };
                match line.what {
                    What::Leads { until } => {
                        let belief = by_term.entry(line.term).or_insert_with(fresh);
                        belief.to = until;
                    }
                    What::Ended => {
                        if let Some(belief) = by_term.get_mut(&line.term) {
                            belief.to = belief.to.min(line.at);
                        }
                    }
                    What::Wrote(_) | What::Refused(_) | What::Acted | What::Struck(_) => {}
                }
            }
            for mut belief in by_term.into_values() {
                for (dead, at) in &self.deaths {
                    if dead == process && (belief.from..=belief.to).contains(at) {
                        belief.to = *at;
                    }
                }
                beliefs.push(belief);
            }
        }
        beliefs.sort_by_key(|belief| belief.from);
        beliefs
    }

    /// What went wrong, if anything did. `bound` is how long nobody may lead.
    pub(crate) fn violations(&self, bound: Duration) -> Vec<String> {
        let mut found = self.second_leaders();
        found.extend(self.late_writes());
        found.extend(self.lost_writes());
        found.extend(self.denied_writes());
        found.extend(self.late_acts());
        found.extend(self.gaps(bound));
        found
    }

    fn second_leaders(&self) -> Vec<String> {
        let beliefs = self.beliefs();
        let mut found = Vec::new();
        for (number, one) in beliefs.iter().enumerate() {
            for other in beliefs.iter().skip(number + 1) {
                if other.from < one.to {
                    let both = one.to.min(other.to).saturating_sub(other.from);
                    let processes = format!("{} and {}", one.process, other.process);
                    found
                        .push(format!("two leaders for {both:?}: {processes}: {one:?}, {other:?}"));
                }
                if other.term <= one.term {
                    found.push(format!("terms do not grow: {one:?} and then {other:?}"));
                }
            }
        }
        found
    }

    /// A term is the index at which its leader acquired the lock: no write of
    /// an earlier term may have a larger one.
    fn late_writes(&self) -> Vec<String> {
        let terms: Vec<u64> = self.beliefs().iter().map(|belief| belief.term).collect();
        let late = self.writes.iter().filter_map(|(term, number, index)| {
            let newer = terms.iter().find(|newer| *newer > term && *newer < index)?;
            Some(format!(
                "write {number} of term {term} at index {index}, after term {newer} began"
            ))
        });
        late.collect()
    }

    fn lost_writes(&self) -> Vec<String> {
        let acknowledged = self.logs.values().flatten().filter_map(|line| match line.what {
            What::Wrote(number) => Some((line.term, number)),
            _ => None,
        });
        let kept: std::collections::BTreeSet<(u64, u64)> =
            self.writes.iter().map(|(term, number, _)| (*term, *number)).collect();
        acknowledged
            .filter(|write| !kept.contains(write))
            .map(|(term, number)| {
                format!("write {number} of term {term} was acknowledged and is lost")
            })
            .collect()
    }

    /// Who is told that nothing was written may write something else in its place.
    fn denied_writes(&self) -> Vec<String> {
        let refused = self.logs.values().flatten().filter_map(|line| match line.what {
            What::Refused(number) => Some((line.term, number)),
            _ => None,
        });
        refused
            .filter(|(term, number)| {
                self.writes.iter().any(|(kept, write, _)| (kept, write) == (term, number))
            })
            .map(|(term, number)| {
                format!("write {number} of term {term} was called refused and has taken effect")
            })
            .collect()
    }

    /// What Consul cannot fence has to be over before another leads. One line for each
    /// term that has acted for too long.
    fn late_acts(&self) -> Vec<String> {
        let beliefs = self.beliefs();
        let mut late: BTreeMap<u64, String> = BTreeMap::new();
        for (process, lines) in &self.logs {
            for line in lines.iter().filter(|line| line.what == What::Acted) {
                let newer =
                    beliefs.iter().find(|belief| belief.term > line.term && belief.from < line.at);
                if let Some(newer) = newer {
                    let after = line.at.saturating_sub(newer.from);
                    late.insert(
                        line.term,
                        format!(
                            "{process} acted in term {} until {after:?} after term {} began",
                            line.term, newer.term
                        ),
                    );
                }
            }
        }
        late.into_values().collect()
    }

    /// How often a mishap has struck, by the word that begins it.
    pub(crate) fn struck(&self, is: impl Fn(Mishap) -> bool) -> usize {
        let all = self.logs.values().flatten();
        all.filter(|line| matches!(line.what, What::Struck(mishap) if is(mishap))).count()
    }

    fn gaps(&self, bound: Duration) -> Vec<String> {
        let mut found = Vec::new();
        let mut led_until: Option<Duration> = None;
        for belief in self.beliefs() {
            if let Some(until) = led_until {
                let away: Duration = self
                    .outages
                    .iter()
                    .map(|(from, to)| (*to).min(belief.from).saturating_sub((*from).max(until)))
                    .sum();
                let gap = belief.from.saturating_sub(until);
                if gap > bound + away {
                    found.push(format!("nobody led for {gap:?} before {belief:?}"));
                }
            }
            led_until = led_until.max(Some(belief.to));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn leads(at: u64, term: u64, until: u64) -> Line {
        Line { at: s(at), term, what: What::Leads { until: s(until) } }
    }

    /// One leads from 1 to 5 and two from 8 on, with a write of each.
    fn sound() -> History {
        let mut history = History::default();
        let wrote = |at, term| Line { at: s(at), term, what: What::Wrote(1) };
        history.logs.insert("one".into(), vec![leads(1, 10, 4), wrote(2, 10), leads(3, 10, 5)]);
        history.logs.insert("two".into(), vec![leads(8, 20, 12), wrote(9, 20)]);
        history.writes = vec![(10, 1, 15), (20, 1, 25)];
        history
    }

    fn verdict(history: &History) -> String {
        history.violations(s(5)).join("\n")
    }

    #[test]
    fn a_sound_run_is_let_pass() {
        assert_eq!(verdict(&sound()), "");
        let line = leads(3, 10, 5);
        let (pause, lost) = (Mishap::Pause(s(2)), Mishap::LostAnswer);
        let others = [What::Ended, What::Acted, What::Refused(3), What::Struck(pause)];
        let others = others.into_iter().chain([What::Struck(lost), What::Wrote(4)]);
        for what in others.chain([line.what.clone()]) {
            let line = Line { what, ..line };
            assert_eq!(Line::parse(line.text().trim_end()), Some(line));
        }
    }

    #[test]
    fn a_second_leader_is_found() {
        let mut history = sound();
        history.logs.get_mut("one").unwrap().push(leads(5, 10, 9));
        assert!(verdict(&history).contains("two leaders for 1s"), "{}", verdict(&history));
        // Unless it had noticed, or was killed.
        let mut noticed = sound();
        let ended = Line { at: s(7), term: 10, what: What::Ended };
        noticed.logs.get_mut("one").unwrap().extend([leads(5, 10, 9), ended]);
        assert_eq!(verdict(&noticed), "");
        history.deaths.push(("one".into(), s(6)));
        assert_eq!(verdict(&history), "");
    }

    #[test]
    fn a_term_that_does_not_grow_is_found() {
        let mut history = sound();
        history.logs.insert("two".into(), vec![leads(8, 10, 12)]);
        assert!(verdict(&history).contains("terms do not grow"));
    }

    #[test]
    fn a_write_of_a_deposed_leader_is_found() {
        let mut history = sound();
        history.writes.push((10, 2, 21));
        assert!(verdict(&history).contains("write 2 of term 10 at index 21"));
    }

    #[test]
    fn a_lost_write_is_found() {
        let mut history = sound();
        history.writes.pop();
        assert!(verdict(&history).contains("write 1 of term 20 was acknowledged and is lost"));
    }

    #[test]
    fn a_write_that_was_called_refused_is_found() {
        let mut history = sound();
        let refused = |number| Line { at: s(3), term: 10, what: What::Refused(number) };
        history.logs.get_mut("one").unwrap().push(refused(2));
        assert_eq!(verdict(&history), "", "it was refused");
        history.writes.push((10, 2, 16));
        assert!(verdict(&history).contains("write 2 of term 10 was called refused"));
    }

    #[test]
    fn an_act_after_another_leads_is_found() {
        let mut history = sound();
        let acted = |at| Line { at: s(at), term: 10, what: What::Acted };
        history.logs.get_mut("one").unwrap().extend([acted(4), acted(7)]);
        assert_eq!(verdict(&history), "", "nobody else leads yet");
        history.logs.get_mut("one").unwrap().push(acted(9));
        assert!(verdict(&history).contains("one acted in term 10 until 1s after term 20 began"));
    }

    #[test]
    fn a_gap_is_found_unless_consul_was_away() {
        let mut history = sound();
        history.logs.get_mut("two").unwrap().insert(0, leads(11, 20, 12));
        history.logs.get_mut("two").unwrap().truncate(1);
        history.writes.pop();
        assert!(verdict(&history).contains("nobody led for 6s"));
        history.outages.push((s(4), s(7)));
        assert_eq!(verdict(&history), "");
    }
}
