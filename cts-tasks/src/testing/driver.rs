//! What every [`Driver`] must do, one function for each sentence of its
//! contract; [`driver_conformance!`](crate::driver_conformance) makes each a test.
//!
//! Each function gets a [`DriverFixture`] of its own, whose task has run
//! nothing yet.
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use std::sync::Arc;
//! use cts_tasks::{Driver, DriverFactory, testing::{RecordingDriver, driver, task}};
//!
//! struct Recorded(RecordingDriver);
//!
//! impl driver::DriverFixture for Recorded {
//!     fn driver(&self) -> Arc<dyn Driver> {
//!         self.0.driver(&task("web")).unwrap()
//!     }
//! }
//!
//! let fixture = Recorded(RecordingDriver::default());
//! driver::what_is_applied_is_in_line_until_the_inputs_change(&fixture).await;
//! # });
//! ```
#![expect(clippy::expect_used, clippy::panic, reason = "a suite fails by panicking")]
#![expect(clippy::missing_panics_doc, reason = "a suite fails by panicking")]

use std::sync::Arc;

use crate::{
    ApplyRequest, Changes, Driver, Error, Outcome, Permit, Plan, PlanId, PlanPurpose, Result,
    RunContext, ServiceInstance, Stop, StopReason, TaskInputs,
};

/// A driver to judge, and the world that it changes.
///
/// The module of its task makes at least one resource for each service
/// instance, and destroys it when the instance is gone.
pub trait DriverFixture: Send + Sync {
    /// The driver of the fixture's only task. Every call gives one as after a
    /// restart of the process on the same machine.
    fn driver(&self) -> Arc<dyn Driver>;

    /// Inputs with so many service instances, which are the same for the same count.
    fn inputs(&self, instances: usize) -> TaskInputs {
        instances_of_web(instances)
    }

    /// Removes or changes one resource that was applied, behind the driver's
    /// back; false, the default, where a test cannot.
    fn drift(&self) -> bool {
        false
    }
}

/// So many instances of the service `web`.
pub fn instances_of_web(count: usize) -> TaskInputs {
    let instance = |number: usize| ServiceInstance {
        id: format!("web-{number}"),
        name: "web".to_owned(),
        address: "10.0.0.1".to_owned(),
        port: i64::try_from(8000 + number).unwrap_or(i64::MAX),
        status: "passing".to_owned(),
        node: "node-1".to_owned(),
        node_id: "39e5a7f5-2834-e16d-6925-78167c9f50d8".to_owned(),
        node_address: "10.0.0.1".to_owned(),
        node_datacenter: "dc1".to_owned(),
        ..ServiceInstance::default()
    };
    TaskInputs {
        services: Some((1..=count).map(instance).map(Arc::new).collect()),
        ..TaskInputs::default()
    }
}

/// Makes a test of each sentence of the contract; the expression makes a fresh
/// fixture for each, and may `await`.
///
/// ```
/// # use std::sync::Arc;
/// # use cts_tasks::{Driver, DriverFactory, testing::{RecordingDriver, driver, task}};
/// # struct Recorded(RecordingDriver);
/// # impl driver::DriverFixture for Recorded {
/// #     fn driver(&self) -> Arc<dyn Driver> { self.0.driver(&task("web")).unwrap() }
/// # }
/// cts_tasks::driver_conformance!(Recorded(RecordingDriver::default()));
/// ```
#[macro_export]
macro_rules! driver_conformance {
    ($fixture:expr) => {
        $crate::driver_conformance!(@all $fixture, each);
    };
    (@all $fixture:expr, $kind:ident) => {
        $crate::driver_conformance!(@$kind $fixture;
            preparing_twice_is_as_good_as_once
            a_plan_changes_nothing
            what_is_applied_is_in_line_until_the_inputs_change
            a_plan_counts_what_it_destroys
            exactly_the_plan_is_applied_and_only_once
            the_same_plan_has_the_same_id
            a_plan_that_is_not_for_an_apply_is_not_kept
            a_plan_that_nobody_made_is_superseded
            a_plan_that_was_discarded_is_superseded
            a_plan_that_no_longer_fits_is_superseded
            a_plan_that_is_held_after_a_restart_can_be_applied
            what_was_destroyed_can_be_applied_anew
            a_stop_ends_every_call_and_changes_nothing
            without_a_permit_nothing_is_changed
            drift_is_found_and_not_repaired
        );
    };
    (@one_by_one $fixture:expr; $($case:ident)*) => {
        $(
            let fixture = $fixture;
            $crate::testing::driver::$case(&fixture).await;
        )*
    };
    (@each $fixture:expr; $($case:ident)*) => {
        $(
            #[tokio::test]
            async fn $case() {
                let fixture = $fixture;
                $crate::testing::driver::$case(&fixture).await;
            }
        )*
    };
}

/// Runs every case of the suite one after the other, where no tests can be made, as in an
/// example; `fixture` makes a fresh one for each.
pub async fn every_case<F: DriverFixture>(fixture: impl Fn() -> F) {
    driver_conformance!(@all fixture(), one_by_one);
}

/// Twice is as good as once, also by another process.
pub async fn preparing_twice_is_as_good_as_once(fixture: &dyn DriverFixture) {
    let driver = prepared(fixture).await;
    driver.prepare(&RunContext::default()).await.expect("a second time");
    prepared(fixture).await;
    assert!(apply(&*driver, &fixture.inputs(1)).await.is_some(), "nothing was applied");
}

/// A plan changes nothing.
pub async fn a_plan_changes_nothing(fixture: &dyn DriverFixture) {
    let driver = prepared(fixture).await;
    let inputs = fixture.inputs(2);
    for purpose in [PlanPurpose::Inspect, PlanPurpose::Apply, PlanPurpose::Inspect] {
        let planned = plan(&*driver, &inputs, purpose).await;
        assert!(planned.changes.add >= 2, "{purpose:?}: {:?}", planned.changes);
    }
}

/// Inputs that were applied call for nothing more.
pub async fn what_is_applied_is_in_line_until_the_inputs_change(fixture: &dyn DriverFixture) {
    let driver = prepared(fixture).await;
    let changes = apply(&*driver, &fixture.inputs(2)).await.expect("something to make");
    assert!(changes.add >= 2 && changes.destroy == 0, "{changes:?}");
    assert!(is_in_line(&*driver, &fixture.inputs(2)).await);
    assert_eq!(apply(&*driver, &fixture.inputs(2)).await, None, "a second apply changed something");
    assert!(!is_in_line(&*driver, &fixture.inputs(3)).await);
}

/// Counts tell how much would be destroyed.
pub async fn a_plan_counts_what_it_destroys(fixture: &dyn DriverFixture) {
    let driver = prepared(fixture).await;
    apply(&*driver, &fixture.inputs(3)).await.expect("something to make");
    let fewer = plan(&*driver, &fixture.inputs(1), PlanPurpose::Inspect).await;
    assert!(fewer.changes.destroy >= 2, "{:?}", fewer.changes);
    assert!(!fewer.changes.addresses.is_empty(), "what is destroyed has addresses");
}

/// A plan for an apply is held, applied as it was made, and then held no more.
pub async fn exactly_the_plan_is_applied_and_only_once(fixture: &dyn DriverFixture) {
    let driver = prepared(fixture).await;
    let planned = plan(&*driver, &fixture.inputs(2), PlanPurpose::Apply).await;
    let outcome = apply_plan(&*driver, &planned.id).await;
    let Outcome::Applied(changes) = outcome else { panic!("{outcome:?}") };
    let counts = |changes: &Changes| (changes.add, changes.change, changes.destroy);
    assert_eq!(counts(&changes), counts(&planned.changes));
    assert!(is_in_line(&*driver, &fixture.inputs(2)).await);
    assert!(!holds(&*driver, &planned.id).await, "it is applied already");
    assert_eq!(apply_plan(&*driver, &planned.id).await, Outcome::Superseded);
}

/// The id is a digest of what the plan is made of.
pub async fn the_same_plan_has_the_same_id(fixture: &dyn DriverFixture) {
    let driver = prepared(fixture).await;
    let one = plan(&*driver, &fixture.inputs(1), PlanPurpose::Inspect).await;
    let again = plan(&*driver, &fixture.inputs(1), PlanPurpose::Inspect).await;
    let other = plan(&*driver, &fixture.inputs(2), PlanPurpose::Inspect).await;
    assert_eq!(one.id, again.id);
    assert_ne!(one.id, other.id);
}

/// Only a plan for an apply can be applied.
pub async fn a_plan_that_is_not_for_an_apply_is_not_kept(fixture: &dyn DriverFixture) {
    let driver = prepared(fixture).await;
    let planned = plan(&*driver, &fixture.inputs(1), PlanPurpose::Inspect).await;
    assert!(!holds(&*driver, &planned.id).await);
    assert_eq!(apply_plan(&*driver, &planned.id).await, Outcome::Superseded);
    assert!(!is_in_line(&*driver, &fixture.inputs(1)).await);
}

/// A plan that is not there is never applied in any form.
pub async fn a_plan_that_nobody_made_is_superseded(fixture: &dyn DriverFixture) {
    let driver = prepared(fixture).await;
    let unknown = PlanId::new("0123456789abcdef");
    assert!(!holds(&*driver, &unknown).await);
    assert_eq!(apply_plan(&*driver, &unknown).await, Outcome::Superseded);
    driver.discard(&unknown, &RunContext::default()).await.expect("an unknown id is no error");
}

/// Checks that a plan which was discarded is gone.
pub async fn a_plan_that_was_discarded_is_superseded(fixture: &dyn DriverFixture) {
    let driver = prepared(fixture).await;
    let planned = plan(&*driver, &fixture.inputs(1), PlanPurpose::Apply).await;
    driver.discard(&planned.id, &RunContext::default()).await.expect("it can be discarded");
    assert!(!holds(&*driver, &planned.id).await);
    assert_eq!(apply_plan(&*driver, &planned.id).await, Outcome::Superseded);
    assert!(!is_in_line(&*driver, &fixture.inputs(1)).await);
    driver.discard(&planned.id, &RunContext::default()).await.expect("twice is no error");
}

/// A plan does not undo what was applied after it was made.
pub async fn a_plan_that_no_longer_fits_is_superseded(fixture: &dyn DriverFixture) {
    let driver = prepared(fixture).await;
    let planned = plan(&*driver, &fixture.inputs(1), PlanPurpose::Apply).await;
    apply(&*driver, &fixture.inputs(3)).await.expect("something to make");
    assert_eq!(apply_plan(&*driver, &planned.id).await, Outcome::Superseded);
    assert!(is_in_line(&*driver, &fixture.inputs(3)).await);
}

/// A process that says that it holds a plan of an earlier one can apply it.
pub async fn a_plan_that_is_held_after_a_restart_can_be_applied(fixture: &dyn DriverFixture) {
    let driver = prepared(fixture).await;
    let planned = plan(&*driver, &fixture.inputs(2), PlanPurpose::Apply).await;
    drop(driver);
    let driver = prepared(fixture).await;
    let held = holds(&*driver, &planned.id).await;
    let outcome = apply_plan(&*driver, &planned.id).await;
    if held {
        assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
        assert!(is_in_line(&*driver, &fixture.inputs(2)).await);
    } else {
        assert_eq!(outcome, Outcome::Superseded, "what is not held is not applied");
    }
}

/// Everything is destroyed, at most once, and can be created again.
pub async fn what_was_destroyed_can_be_applied_anew(fixture: &dyn DriverFixture) {
    let driver = prepared(fixture).await;
    let context = RunContext::default();
    let nothing = driver.destroy(&context).await.expect("there is nothing to destroy");
    assert_eq!(settle(&*driver, nothing).await, Outcome::Unchanged);
    apply(&*driver, &fixture.inputs(2)).await.expect("something to make");
    let destroyed = driver.destroy(&context).await.expect("it can be destroyed");
    let outcome = settle(&*driver, destroyed).await;
    let Outcome::Applied(changes) = outcome else { panic!("{outcome:?}") };
    assert!(changes.destroy >= 2 && changes.add == 0, "{changes:?}");
    assert!(!is_in_line(&*driver, &fixture.inputs(2)).await);
    let changes = apply(&*driver, &fixture.inputs(2)).await.expect("something to make");
    assert!(changes.add >= 2, "{changes:?}");
}

/// A stop that was given ends a call with that reason, and nothing is done.
pub async fn a_stop_ends_every_call_and_changes_nothing(fixture: &dyn DriverFixture) {
    let driver = prepared(fixture).await;
    let stop = Stop::new();
    stop.stop(StopReason::LeadershipLost);
    let (context, inputs) = (RunContext::new(stop), fixture.inputs(2));
    let stopped = |result: Result<()>| match result {
        Err(Error::Stopped { reason }) => assert_eq!(reason, StopReason::LeadershipLost),
        other => panic!("not stopped: {other:?}"),
    };
    stopped(driver.prepare(&context).await);
    stopped(driver.plan(&inputs, PlanPurpose::Apply, &context).await.map(drop));
    stopped(driver.apply(ApplyRequest::Inputs(&inputs), &context).await.map(drop));
    stopped(driver.destroy(&context).await.map(drop));
    let changes = apply(&*driver, &inputs).await.expect("nothing was made before");
    assert!(changes.add >= 2, "{changes:?}");
}

/// Checks that a driver without a permit changes nothing outside.
pub async fn without_a_permit_nothing_is_changed(fixture: &dyn DriverFixture) {
    let driver = prepared(fixture).await;
    let denied = RunContext::default().with_permit(Arc::new(Denied));
    let refused = |result: Result<Outcome>| match result {
        Err(Error::NotPermitted { .. }) => {}
        other => panic!("not refused: {other:?}"),
    };
    let inputs = fixture.inputs(2);
    refused(driver.apply(ApplyRequest::Inputs(&inputs), &denied).await);
    let planned = plan(&*driver, &inputs, PlanPurpose::Apply).await;
    refused(driver.apply(ApplyRequest::Plan(&planned.id), &denied).await);
    driver.discard(&planned.id, &RunContext::default()).await.expect("it can be discarded");
    assert!(!is_in_line(&*driver, &inputs).await);
    apply(&*driver, &inputs).await.expect("something to make");
    refused(driver.destroy(&denied).await);
    assert!(is_in_line(&*driver, &inputs).await);
}

/// Checks that drift, a change behind the driver's back, is reported and left
/// alone.
pub async fn drift_is_found_and_not_repaired(fixture: &dyn DriverFixture) {
    let driver = prepared(fixture).await;
    let inputs = fixture.inputs(2);
    apply(&*driver, &inputs).await.expect("something to make");
    let clean = plan(&*driver, &inputs, PlanPurpose::Drift).await;
    assert!(clean.changes.is_empty(), "{:?}", clean.changes);
    assert!(!holds(&*driver, &clean.id).await, "a plan for drift is not kept");
    if !fixture.drift() {
        return;
    }
    for _ in 0..2 {
        let drifted = plan(&*driver, &inputs, PlanPurpose::Drift).await;
        assert!(!drifted.changes.is_empty(), "no drift was found");
    }
    apply(&*driver, &inputs).await.expect("the drift to repair");
    let repaired = plan(&*driver, &inputs, PlanPurpose::Drift).await;
    assert!(repaired.changes.is_empty(), "{:?}", repaired.changes);
}

/// Denies everything.
#[derive(Debug)]
struct Denied;

impl Permit for Denied {
    fn check(&self) -> Result<()> {
        Err(Error::NotPermitted { reason: "another process leads".to_owned() })
    }
}

async fn prepared(fixture: &dyn DriverFixture) -> Arc<dyn Driver> {
    let driver = fixture.driver();
    driver.prepare(&RunContext::default()).await.expect("the driver can be prepared");
    driver
}

async fn plan(driver: &dyn Driver, inputs: &TaskInputs, purpose: PlanPurpose) -> Plan {
    let plan = driver.plan(inputs, purpose, &RunContext::default()).await.expect("it can plan");
    assert_eq!(plan.waiting, None, "that is the engine's to note");
    plan
}

async fn is_in_line(driver: &dyn Driver, inputs: &TaskInputs) -> bool {
    plan(driver, inputs, PlanPurpose::Inspect).await.changes.is_empty()
}

async fn holds(driver: &dyn Driver, id: &PlanId) -> bool {
    driver.holds(id, &RunContext::default()).await.expect("it can tell what it holds")
}

/// Applies `inputs` and returns the changes; `None` if nothing was changed.
async fn apply(driver: &dyn Driver, inputs: &TaskInputs) -> Option<Changes> {
    let request = ApplyRequest::Inputs(inputs);
    let begun = driver.apply(request, &RunContext::default()).await.expect("it can apply");
    match settle(driver, begun).await {
        Outcome::Applied(changes) => Some(changes),
        Outcome::Unchanged => None,
        other => panic!("an apply of inputs ended as {other:?}"),
    }
}

async fn apply_plan(driver: &dyn Driver, id: &PlanId) -> Outcome {
    let request = ApplyRequest::Plan(id);
    let begun = driver.apply(request, &RunContext::default()).await.expect("it can apply a plan");
    settle(driver, begun).await
}

/// Follows what waits for a person elsewhere, as the engine does.
async fn settle(driver: &dyn Driver, mut outcome: Outcome) -> Outcome {
    while let Outcome::Waiting { ticket, .. } = outcome {
        outcome = driver.follow(&ticket, &RunContext::default()).await.expect("it can be followed");
    }
    outcome
}
