//! The conformance suite on the driver that records.

use std::sync::Arc;

use async_trait::async_trait;
use cts_tasks::{
    ApplyRequest, Driver, DriverFactory, Outcome, Plan, PlanId, PlanPurpose, Result, RunContext,
    TaskInputs,
    testing::{RecordingDriver, driver, driver::DriverFixture, task},
};

#[derive(Default)]
struct Recorded(RecordingDriver);

impl DriverFixture for Recorded {
    fn driver(&self) -> Arc<dyn Driver> {
        self.0.driver(&task("t")).unwrap()
    }

    fn drift(&self) -> bool {
        self.0.drift("t")
    }
}

cts_tasks::driver_conformance!(Recorded::default());

/// How a driver may be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Applies whatever is newest when it is told to apply a plan.
    AppliesSomethingElse,
    /// Says that it holds every plan.
    HoldsEverything,
    /// Counts nothing.
    CountsNothing,
    /// Does not ask whether it may act.
    AsksNobody,
    /// Does not look at the stop.
    GoesOn,
}

#[derive(Debug)]
struct Faulty {
    inner: Arc<dyn Driver>,
    fault: Fault,
}

struct FaultyFixture(Recorded, Fault);

impl DriverFixture for FaultyFixture {
    fn driver(&self) -> Arc<dyn Driver> {
        Arc::new(Faulty { inner: self.0.driver(), fault: self.1 })
    }
}

#[async_trait]
impl Driver for Faulty {
    async fn prepare(&self, context: &RunContext) -> Result<()> {
        self.inner.prepare(context).await
    }

    async fn plan(
        &self,
        inputs: &TaskInputs,
        purpose: PlanPurpose,
        context: &RunContext,
    ) -> Result<Plan> {
        let mut plan = self.inner.plan(inputs, purpose, context).await?;
        if self.fault == Fault::CountsNothing {
            plan.changes.destroy = 0;
        }
        Ok(plan)
    }

    async fn apply(&self, request: ApplyRequest<'_>, context: &RunContext) -> Result<Outcome> {
        let mut context = context.clone();
        if self.fault == Fault::AsksNobody {
            context.permit = Arc::new(cts_tasks::Single);
        }
        if self.fault == Fault::GoesOn {
            context.stop = cts_tasks::Stop::new();
        }
        match (request, self.fault) {
            (ApplyRequest::Plan(_), Fault::AppliesSomethingElse) => {
                let newest = driver::instances_of_web(1);
                self.inner.apply(ApplyRequest::Inputs(&newest), &context).await
            }
            _ => self.inner.apply(request, &context).await,
        }
    }

    async fn holds(&self, plan: &PlanId, context: &RunContext) -> Result<bool> {
        Ok(self.fault == Fault::HoldsEverything || self.inner.holds(plan, context).await?)
    }

    async fn discard(&self, plan: &PlanId, context: &RunContext) -> Result<()> {
        self.inner.discard(plan, context).await
    }

    async fn follow(&self, ticket: &str, context: &RunContext) -> Result<Outcome> {
        self.inner.follow(ticket, context).await
    }

    async fn destroy(&self, context: &RunContext) -> Result<Outcome> {
        self.inner.destroy(context).await
    }
}

/// Whether a case finds the fault.
async fn is_found<F>(fault: Fault, case: impl FnOnce(FaultyFixture) -> F) -> bool
where
    F: Future<Output = ()> + Send + 'static,
{
    let judged = tokio::spawn(case(FaultyFixture(Recorded::default(), fault)));
    judged.await.is_err_and(|error| error.is_panic())
}

#[tokio::test]
async fn the_suite_finds_a_driver_that_is_wrong() {
    let exact = |f: FaultyFixture| async move {
        driver::a_plan_that_nobody_made_is_superseded(&f).await;
    };
    assert!(is_found(Fault::AppliesSomethingElse, exact).await);
    assert!(is_found(Fault::HoldsEverything, exact).await);
    let counts = |f: FaultyFixture| async move { driver::a_plan_counts_what_it_destroys(&f).await };
    assert!(is_found(Fault::CountsNothing, counts).await);
    let permit =
        |f: FaultyFixture| async move { driver::without_a_permit_nothing_is_changed(&f).await };
    assert!(is_found(Fault::AsksNobody, permit).await);
    let stop = |f: FaultyFixture| async move {
        driver::a_stop_ends_every_call_and_changes_nothing(&f).await;
    };
    assert!(is_found(Fault::GoesOn, stop).await);
}
