//! Nothing is changed outside without the permit.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use cts_tasks::{ApplyRequest, Driver, Error, Permit, PlanPurpose, Result, RunContext};
use serde_json::json;

use crate::site::{Site, context, services, tools};

/// Allows a number of steps, and no more.
#[derive(Debug)]
struct Allows(AtomicUsize);

impl Permit for Allows {
    fn check(&self) -> Result<()> {
        let left =
            self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match left {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::NotPermitted { reason: "another process leads".into() }),
        }
    }
}

fn allowing(steps: usize) -> RunContext {
    RunContext::default().with_permit(Arc::new(Allows(AtomicUsize::new(steps))))
}

async fn every_call(driver: &dyn Driver) -> Vec<Option<Error>> {
    let (one, none) = (services(&[("b", 81)]), allowing(0));
    vec![
        driver.prepare(&allowing(0)).await.err(),
        driver.prepare(&allowing(1)).await.err(),
        driver.plan(&one, PlanPurpose::Inspect, &none).await.err(),
        driver.apply(ApplyRequest::Inputs(&one), &none).await.err(),
        driver.destroy(&none).await.err(),
    ]
}

#[tokio::test]
async fn a_process_that_may_not_act_changes_nothing() {
    for tool in tools("a_process_that_may_not_act_changes_nothing") {
        let site = Site::new(&tool);
        let driver = site.driver(&json!({}));
        driver.prepare(&context()).await.unwrap();
        let inputs = services(&[("a", 80)]);
        driver.apply(ApplyRequest::Inputs(&inputs), &context()).await.unwrap();
        for error in every_call(driver.as_ref()).await {
            assert!(matches!(error, Some(Error::NotPermitted { .. })), "{error:?}");
        }
        assert_eq!(site.rules(), ["a=10.0.0.1:80"]);

        let plan = driver.plan(&services(&[]), PlanPurpose::Apply, &context()).await.unwrap();
        let refused = driver.apply(ApplyRequest::Plan(&plan.id), &allowing(1)).await;
        assert!(matches!(refused, Err(Error::NotPermitted { .. })), "{refused:?}");
        assert_eq!(site.rules(), ["a=10.0.0.1:80"]);
        driver.apply(ApplyRequest::Plan(&plan.id), &allowing(2)).await.unwrap();
        assert!(site.rules().is_empty(), "the plan that was refused is still there");
    }
}
