//! What triggers, what a module gets, and what an answer costs.

use std::time::Duration;

use consul_watch::types::{HealthCheck, HealthStatus, KvPair, Node, Service};
use nix::time::{ClockId, clock_gettime};

use super::*;
use crate::{BufferPeriod, TaskName};

fn task(condition: Condition, module_inputs: Vec<ModuleInput>) -> Task {
    let name = TaskName::try_from("t".to_owned()).unwrap();
    let mut task = Task::new(name, condition).with_module("m");
    task.buffer_period = BufferPeriod::Disabled;
    task.module_inputs = module_inputs;
    task
}

fn view(condition: Condition, module_inputs: Vec<ModuleInput>) -> View {
    View::new(&task(condition, module_inputs)).unwrap()
}

fn named(names: &[&str]) -> ServiceSelection {
    ServiceSelection::Named(
        names
            .iter()
            .map(|name| NamedService {
                name: (*name).into(),
                datacenter: String::new(),
                namespace: String::new(),
                filter: String::new(),
                cts_user_defined_meta: [("tier".into(), "front".into())].into(),
            })
            .collect(),
    )
}

fn matching(regexp: &str) -> ServiceSelection {
    ServiceSelection::Matching(MatchingServices {
        regexp: regexp.into(),
        datacenter: String::new(),
        namespace: String::new(),
        filter: String::new(),
        cts_user_defined_meta: BTreeMap::new(),
    })
}

fn services(services: ServiceSelection) -> Condition {
    Condition::Services { services, use_as_module_input: true }
}

fn catalog(regexp: &str) -> Condition {
    let services = CatalogServicesSelection {
        regexp: regexp.into(),
        datacenter: String::new(),
        namespace: String::new(),
        node_meta: BTreeMap::new(),
    };
    Condition::CatalogServices { services, use_as_module_input: true }
}

fn kv(path: &str, recurse: bool) -> KvSelection {
    KvSelection { path: path.into(), recurse, datacenter: String::new(), namespace: String::new() }
}

fn instances_dependency(name: &str) -> Arc<Dependency> {
    Arc::new(Dependency::Instances {
        name: name.into(),
        datacenter: String::new(),
        namespace: String::new(),
        filter: String::new(),
        passing: true,
    })
}

fn names_dependency() -> Arc<Dependency> {
    Arc::new(Dependency::Names {
        datacenter: String::new(),
        namespace: String::new(),
        node_meta: BTreeMap::new(),
    })
}

impl View {
    fn take(&mut self, dependency: &Arc<Dependency>, value: &DependencyValue) -> Update {
        self.update(dependency, value, Instant::now())
    }

    fn inputs_of_run(&mut self) -> Option<TaskInputs> {
        let (inputs, digest) = self.take_inputs()?;
        assert_eq!(digest, InputsDigest::of(&inputs));
        Some(inputs)
    }
}

fn entry(service: &str, node: &str, tags: &[&str]) -> ServiceEntry {
    let mut entry = ServiceEntry::default();
    entry.node = Node::default();
    entry.node.name = node.into();
    entry.node.address = "10.0.0.1".into();
    entry.service = Service::new(service, format!("{service}-{node}"));
    entry.service.port = 80;
    entry.service.tags = tags.iter().map(|tag| (*tag).into()).collect();
    entry
}

fn instances_of(entries: &[ServiceEntry]) -> DependencyValue {
    DependencyValue::Instances(Arc::new(entries.to_vec()))
}

fn names_with(names: &[(&str, &[&str])]) -> DependencyValue {
    let names = names.iter().map(|(name, tags)| {
        ((*name).to_owned(), tags.iter().map(|tag| (*tag).to_owned()).collect())
    });
    DependencyValue::Names(Arc::new(names.collect()))
}

fn ids(inputs: &TaskInputs) -> Vec<&str> {
    inputs.services.iter().flatten().map(|instance| instance.id.as_str()).collect()
}

/// Spec: CTS67
#[test]
fn inputs_are_there_once_every_service_was_answered() {
    let mut view = view(services(named(&["web", "api"])), Vec::new());
    assert_eq!(
        *view.dependencies(),
        [instances_dependency("api"), instances_dependency("web")].into()
    );
    view.take(&instances_dependency("web"), &instances_of(&[entry("web", "n1", &[])]));
    assert_eq!(view.inputs_of_run(), None);
    view.take(&instances_dependency("api"), &instances_of(&[entry("api", "n2", &[])]));
    let inputs = view.inputs_of_run().unwrap();
    assert_eq!(ids(&inputs), ["api-n2", "web-n1"], "in the order of the names");
    assert!(!view.is_dirty());
}

#[test]
fn an_instance_is_handed_on_as_modules_expect_it() {
    let mut view = view(services(named(&["web"])), Vec::new());
    let mut web = entry("web", "n1", &["b", "a"]);
    web.checks = vec![HealthCheck::of_node("serfHealth", HealthStatus::Warning)];
    web.node.meta = [("k".into(), "v".into())].into();
    view.take(&instances_dependency("web"), &instances_of(&[web]));
    let inputs = view.inputs_of_run().unwrap();
    let expected = ServiceInstance {
        id: "web-n1".into(),
        name: "web".into(),
        address: "10.0.0.1".into(),
        port: 80,
        tags: vec!["a".into(), "b".into()],
        status: "warning".into(),
        node: "n1".into(),
        node_address: "10.0.0.1".into(),
        node_meta: [("k".into(), "v".into())].into(),
        cts_user_defined_meta: [("tier".into(), "front".into())].into(),
        ..ServiceInstance::default()
    };
    assert_eq!(inputs.services, Some(vec![Arc::new(expected)]));
}

#[test]
fn a_change_of_a_listed_service_triggers_and_equal_data_does_not() {
    let mut view = view(services(named(&["web"])), Vec::new());
    let one = instances_of(&[entry("web", "n1", &[])]);
    assert!(view.take(&instances_dependency("web"), &one).triggers);
    assert!(!view.take(&instances_dependency("web"), &one).triggers);
    assert!(view.take(&instances_dependency("web"), &instances_of(&[])).triggers);
}

/// Spec: CTS63
#[test]
fn data_of_a_module_input_is_fresh_but_does_not_trigger() {
    let condition = Condition::ConsulKv { keys: kv("color", false), use_as_module_input: true };
    let mut view = view(condition, vec![ModuleInput::Services(named(&["web"]))]);
    let dependency = Arc::new(kv_dependency(&kv("color", false)));
    assert!(view.take(&dependency, &DependencyValue::Key(Arc::new(None))).triggers);
    let update = view.take(&instances_dependency("web"), &instances_of(&[entry("web", "n1", &[])]));
    assert!(!update.triggers);
    assert!(view.is_dirty());
    let inputs = view.inputs_of_run().unwrap();
    assert_eq!(ids(&inputs), ["web-n1"]);
    assert_eq!(inputs.consul_kv, Some(Vec::new()), "an absent key is no entry");
}

#[test]
fn names_that_match_are_watched_and_those_that_go_are_forgotten() {
    let mut view = view(services(matching("^web")), Vec::new());
    assert_eq!(*view.dependencies(), [names_dependency()].into());
    let update = view.take(&names_dependency(), &names_with(&[("web", &[]), ("db", &[])]));
    assert_eq!(update, Update { triggers: false, dependencies_changed: true });
    assert_eq!(*view.dependencies(), [instances_dependency("web"), names_dependency()].into());
    assert!(!view.is_complete());

    let first = instances_of(&[entry("web", "n1", &[])]);
    assert!(view.take(&instances_dependency("web"), &first).triggers);
    assert_eq!(ids(&view.inputs_of_run().unwrap()), ["web-n1"]);

    assert!(view.take(&names_dependency(), &names_with(&[("db", &[])])).triggers);
    assert_eq!(ids(&view.inputs_of_run().unwrap()), Vec::<&str>::new());
}

/// Processor time that `work` takes on this thread, which no other process makes longer.
fn cost(work: impl FnOnce()) -> Duration {
    let now = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
    let begun = now();
    work();
    now().saturating_sub(begun)
}

/// Costs of the first answers for so many services, and of one hundred changes after them.
fn costs(by_name: bool, count: usize) -> (Duration, Duration) {
    let names: Vec<String> = (0..count).map(|number| format!("s{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let listed: Vec<(&str, &[&str])> = names.iter().map(|name| (*name, &[][..])).collect();
    let answers = |tag: &'static str| -> Vec<_> {
        let answer =
            |name: &&str| (instances_dependency(name), instances_of(&[entry(name, "n", &[tag])]));
        names.iter().map(answer).collect()
    };
    let (first, mut later) = (answers("first"), answers("later"));
    later.truncate(100);
    let selection = if by_name { named(&names) } else { matching("") };
    let mut view = view(services(selection), Vec::new());
    if !by_name {
        view.take(&names_dependency(), &names_with(&listed));
    }
    let mut take = |answers: &[(Arc<Dependency>, DependencyValue)]| {
        for (dependency, value) in answers {
            assert!(view.take(dependency, value).triggers);
            // As the worker asks after each.
            let _known = (view.is_complete(), view.missing().len(), view.dependencies().len());
        }
    };
    let costs = (cost(|| take(&first)), cost(|| take(&later)));
    assert_eq!(view.inputs_of_run().unwrap().services.unwrap().len(), count);
    costs
}

/// The start was quadratic: each answer rebuilt what the task depends on, and its instances.
#[test]
fn the_start_costs_what_it_brings_and_a_change_as_much_among_many_as_among_few() {
    const FEW: usize = 250;
    const TIMES: usize = 16;
    for by_name in [true, false] {
        let least = |count| {
            let (starts, changes): (Vec<_>, Vec<_>) = (0..3).map(|_| costs(by_name, count)).unzip();
            let least = |all: Vec<Duration>| all.into_iter().min().unwrap().as_secs_f64();
            (least(starts), least(changes))
        };
        let (few, many) = (least(FEW), least(FEW * TIMES));
        let (start, change) = (many.0 / few.0, many.1 / few.1);
        // Quadratic are 256 times the cost, and 16 for a change.
        assert!(start < 64.0, "16 times the services cost {start:.1} times as much");
        assert!(change < 5.0, "a change among 16 times as many costs {change:.1} times as much");
    }
}

/// What makes the start and each change of a task with thousands of services cost what they bring.
#[test]
fn an_answer_leaves_what_was_made_of_the_others() {
    let mut view = view(services(matching(".*")), Vec::new());
    view.take(&names_dependency(), &names_with(&[("api", &[]), ("db", &[]), ("web", &[])]));
    let addresses =
        |view: &View| -> Vec<_> { view.dependencies().iter().map(Arc::as_ptr).collect() };
    let dependencies = addresses(&view);
    for name in ["api", "db", "web"] {
        view.take(&instances_dependency(name), &instances_of(&[entry(name, "n1", &[])]));
    }
    let before = view.inputs_of_run().unwrap().services.unwrap();
    view.take(&instances_dependency("web"), &instances_of(&[entry("web", "n1", &["new"])]));
    let after = view.inputs_of_run().unwrap().services.unwrap();
    assert_eq!(addresses(&view), dependencies, "instances bring no names");
    let kept: Vec<_> = std::iter::zip(&before, &after)
        .map(|(before, after)| (after.id.as_str(), Arc::ptr_eq(before, after)))
        .collect();
    assert_eq!(kept, [("api-n1", true), ("db-n1", true), ("web-n1", false)]);
}

#[test]
fn a_matching_service_without_instances_does_not_trigger() {
    let mut view = view(services(matching(".*")), Vec::new());
    view.take(&names_dependency(), &names_with(&[("web", &[])]));
    assert!(!view.take(&instances_dependency("web"), &instances_of(&[])).triggers);
    assert!(!view.take(&names_dependency(), &names_with(&[])).triggers);
}

#[test]
fn instances_of_a_regular_expression_are_ordered_by_node() {
    let mut view = view(services(matching("")), Vec::new());
    view.take(&names_dependency(), &names_with(&[("a", &[]), ("b", &[])]));
    view.take(&instances_dependency("a"), &instances_of(&[entry("a", "n2", &[])]));
    view.take(&instances_dependency("b"), &instances_of(&[entry("b", "n1", &[])]));
    assert_eq!(ids(&view.inputs_of_run().unwrap()), ["b-n1", "a-n2"]);
}

/// Spec: CTS59
#[test]
fn only_the_set_of_names_triggers_a_catalog_condition() {
    let mut view = view(catalog("^(web|api)$"), Vec::new());
    let mut triggers =
        |names: &[(&str, &[&str])]| view.take(&names_dependency(), &names_with(names)).triggers;
    assert!(triggers(&[("web", &[])]));
    assert!(!triggers(&[("web", &["v2"])]), "a tag changed");
    assert!(!triggers(&[("web", &["v2"]), ("db", &[])]), "another service");
    assert!(triggers(&[("api", &[]), ("web", &["v2"])]), "first in");
    assert!(triggers(&[("api", &[])]), "last out");
    let inputs = view.inputs_of_run().unwrap();
    assert_eq!(inputs.catalog_services, Some([("api".to_owned(), Vec::new())].into()));
}

#[test]
fn a_condition_that_is_no_input_triggers_without_being_handed_on() {
    let condition = Condition::Services { services: named(&["web"]), use_as_module_input: false };
    let mut view = view(condition, Vec::new());
    assert!(view.take(&instances_dependency("web"), &instances_of(&[])).triggers);
    assert_eq!(view.inputs_of_run(), Some(TaskInputs::default()));
}

#[test]
fn keys_under_a_prefix_keep_their_full_path() {
    let condition = Condition::ConsulKv { keys: kv("/app", true), use_as_module_input: true };
    let mut view = view(condition, Vec::new());
    let dependency = Arc::new(Dependency::Prefix {
        path: "app".into(),
        datacenter: String::new(),
        namespace: String::new(),
    });
    assert_eq!(*view.dependencies(), [Arc::clone(&dependency)].into());
    let mut pair = KvPair::default();
    pair.key = "app/color".into();
    pair.value = b"red".to_vec().into();
    view.take(&dependency, &DependencyValue::Prefix(Arc::new(vec![pair])));
    let expected = KvEntry { path: "app/color".into(), value: b"red".to_vec() };
    assert_eq!(view.inputs_of_run().unwrap().consul_kv, Some(vec![expected]));
}

#[test]
fn wants_are_named_as_upstream_names_them() {
    let dependency = |passing| Dependency::Instances {
        name: "web".into(),
        datacenter: "dc1".into(),
        namespace: "ns1".into(),
        filter: "Service.Port == 80".into(),
        passing,
    };
    assert_eq!(
        dependency(true).to_string(),
        "health.service(web@dc1|passing&ns=ns1&filter=Service.Port == 80)"
    );
    assert_eq!(
        dependency(false).to_string(),
        "health.service(web@dc1|ns=ns1&filter=Service.Port == 80)"
    );
    assert_eq!(names_dependency().to_string(), "catalog.services()");
    assert_eq!(kv_dependency(&kv("a/b", true)).to_string(), "kv.list(a/b)");
}

#[test]
fn a_service_that_begins_to_match_takes_nothing_away_until_it_is_read() {
    let mut view = view(services(matching("^web")), Vec::new());
    view.take(&names_dependency(), &names_with(&[("web", &[])]));
    assert_eq!(view.inputs(), None, "not everything was read once");
    view.take(&instances_dependency("web"), &instances_of(&[entry("web", "a", &[])]));
    view.take(&names_dependency(), &names_with(&[("web", &[]), ("web-new", &[])]));
    // A change of the first one may run the task before the second was read.
    view.take(&instances_dependency("web"), &instances_of(&[entry("web", "b", &[])]));
    assert_eq!(ids(&view.inputs_of_run().unwrap()), ["web-b"]);
    let read = view.take(&instances_dependency("web-new"), &instances_of(&[entry("x", "c", &[])]));
    assert!(read.triggers);
    assert_eq!(ids(&view.inputs_of_run().unwrap()), ["web-b", "x-c"]);
}
