//! The channel over the double.
#![expect(clippy::unwrap_used, reason = "tests")]

use consul_watch::{Watcher, testing::TestConsul, types::HealthStatus};
use watch_channel::follow;

#[tokio::test]
async fn the_newest_instances_are_in_the_channel() {
    let consul = TestConsul::new();
    let watcher = Watcher::new(consul.client());
    let mut web = follow(&watcher, "web");
    let addresses = |web: &watch_channel::Instances| {
        web.passing.iter().map(|it| it.address().to_owned()).collect::<Vec<_>>()
    };
    consul.set_instance("web", "web-1", "10.0.0.1", 80, HealthStatus::Passing);
    web.wait_for(|web| addresses(web) == ["10.0.0.1"]).await.unwrap();
    consul.set_instance("web", "web-2", "10.0.0.2", 80, HealthStatus::Passing);
    web.wait_for(|web| addresses(web) == ["10.0.0.1", "10.0.0.2"]).await.unwrap();
    consul.set_instance("web", "web-1", "10.0.0.1", 80, HealthStatus::Critical);
    web.wait_for(|web| addresses(web) == ["10.0.0.2"]).await.unwrap();
    assert_eq!(web.borrow().problem, None);
}
