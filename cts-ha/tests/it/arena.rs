//! The conformance suite of elections, on every elector of the crate.

use std::{sync::Arc, time::Duration};

use consul_watch::{Clock, testing::TestClock};
use cts_ha::{
    Candidate, Consul, ConsulElector, Elector, Timing,
    testing::{
        Ballot, InProcessElector,
        election::{self, Arena, Contender},
    },
};

use crate::place::{Place, Trouble};

struct Here(Ballot);

struct One(InProcessElector);

impl Here {
    fn new() -> Self {
        let delay = Duration::from_secs(15);
        let timing = Timing::new(Duration::from_secs(15), delay).unwrap();
        Self(Ballot::new(timing, delay))
    }
}

impl Arena for Here {
    fn candidate(&self, id: &str, clock: Arc<dyn Clock>) -> Box<dyn Contender> {
        Box::new(One(self.0.candidate(id, clock)))
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(TestClock::default())
    }

    fn failover(&self) -> Duration {
        Duration::from_secs(50)
    }
}

impl Contender for One {
    fn elector(&self) -> Arc<dyn Elector> {
        Arc::new(self.0.clone())
    }

    fn cut(&self, cut: bool) {
        self.0.cut(cut);
    }
}

struct InConsul<'a> {
    place: &'a Place,
    key: String,
}

struct Reached {
    elector: Arc<ConsulElector>,
    trouble: Trouble,
}

impl<'a> InConsul<'a> {
    fn new(place: &'a Place) -> Self {
        Self { place, key: place.name("leader") }
    }
}

impl Arena for InConsul<'_> {
    fn candidate(&self, id: &str, clock: Arc<dyn Clock>) -> Box<dyn Contender> {
        let (client, trouble) = self.place.troubled();
        let mut options = self.place.election();
        options.clock = clock;
        let consul = Consul::new(client);
        let elector = ConsulElector::new(&consul, &self.key, Candidate::new(id), options).unwrap();
        Box::new(Reached { elector: Arc::new(elector), trouble })
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.place.clock)
    }

    fn failover(&self) -> Duration {
        self.place.failover()
    }
}

impl Contender for Reached {
    fn elector(&self) -> Arc<dyn Elector> {
        Arc::clone(&self.elector) as Arc<dyn Elector>
    }

    fn cut(&self, cut: bool) {
        self.trouble.cut(cut);
    }
}

macro_rules! suite {
    ($($name:ident),* $(,)?) => {
        mod in_process {
            $(#[tokio::test(start_paused = true)]
            async fn $name() {
                super::election::$name(&super::Here::new()).await;
            })*
        }
        $(async fn $name(place: &Place) {
            election::$name(&InConsul::new(place)).await;
        })*
        crate::place::cases!($($name),*);
    };
}

suite!(
    at_most_one_leads,
    a_leader_that_resigns_is_followed_at_once,
    tokens_grow,
    a_leader_cut_off_ends_before_another_leads,
    a_short_cut_is_survived,
    leadership_lasts_whenever_it_is_gained,
    a_slow_clock_ends_in_time,
    a_suspended_leader_knows_it_at_once,
    a_leadership_dropped_is_given_up,
    the_leader_is_known,
    work_runs_while_leading,
    work_does_not_outlast_a_suspend,
    work_that_is_dropped_or_panics_is_given_up,
);
