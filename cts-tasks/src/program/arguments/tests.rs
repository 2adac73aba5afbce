use std::path::PathBuf;

use super::*;

fn parse(line: &str) -> Result<Invocation, Refused> {
    Invocation::parse(&crate::program::sync(), line.split_whitespace().map(OsString::from))
}

fn start(line: &str) -> StartFlags {
    match parse(line).unwrap() {
        Invocation::Start { flags, .. } => flags,
        other => panic!("not a start: {other:?}"),
    }
}

fn help(line: &str) -> String {
    match parse(line).unwrap() {
        Invocation::Help(text) => text,
        other => panic!("no help: {other:?}"),
    }
}

/// Spec: CTS82
#[test]
fn flags_take_one_dash_or_two_and_values_with_or_without_equals() {
    for line in [
        "start -config-file a.hcl -once",
        "start --config-file a.hcl --once",
        "start -config-file=a.hcl -once=true",
        "start --config-file=a.hcl --once=1",
    ] {
        let flags = start(line);
        assert_eq!(flags.configuration.paths, [PathBuf::from("a.hcl")], "{line}");
        assert!(flags.once, "{line}");
    }
    assert!(!start("start -config-file a.hcl -once=false").once);
    for line in [
        "task create -task-file a.hcl -http-addr http://a:1 -auto-approve",
        "task create --task-file=a.hcl --http-addr=http://a:1 --auto-approve=true",
    ] {
        let Invocation::Task(TaskCommand::Create(flags)) = parse(line).unwrap() else {
            panic!("{line}")
        };
        assert_eq!(flags.task_file, Some(PathBuf::from("a.hcl")));
        assert_eq!(flags.connection.http_addr.as_deref(), Some("http://a:1"));
        assert!(flags.approval.auto_approve);
    }
}

#[test]
fn a_flag_that_stands_twice_counts_where_it_stands_last() {
    assert!(!start("start -config-file a.hcl -once -once=false").once);
    let flags = start("start -config-file a.hcl -inspect-task a -inspect-task b");
    assert_eq!(flags.inspect_tasks, ["a", "b"]);
}

#[test]
fn files_and_directories_keep_the_order_of_the_command_line() {
    let flags = start("start -config-dir d -config-file=a.hcl -config-dir=e");
    assert_eq!(flags.configuration.paths, ["d", "a.hcl", "e"].map(PathBuf::from));
}

#[test]
fn flags_without_a_command_are_the_old_form_of_start() {
    let legacy = |line| matches!(parse(line).unwrap(), Invocation::Start { legacy: true, .. });
    assert!(legacy("-config-file a.hcl"));
    assert!(legacy("-config-dir=d -once"));
    assert!(!legacy("start -config-file a.hcl"));
    let refused = parse("-once").unwrap_err();
    assert_eq!(refused.exit, Exit::RequiredFlags);
    assert!(refused.message.contains("no config file provided"), "{}", refused.message);
    assert!(refused.message.contains("Usage CLI:"), "{}", refused.message);
}

#[test]
fn naming_a_task_implies_inspection() {
    assert!(start("start -config-file a.hcl -inspect-task web").inspect());
}

#[test]
fn mistakes_have_their_exit_codes() {
    for (line, exit) in [
        ("start", Exit::RequiredFlags),
        ("", Exit::RequiredFlags),
        ("validate", Exit::RequiredFlags),
        ("task", Exit::NoSubcommand),
        ("task enable", Exit::RequiredFlags),
        ("task delete", Exit::RequiredFlags),
        ("task create", Exit::RequiredFlags),
        ("start -config-file a.hcl -wrong", Exit::FlagParse),
        ("start -config-file a.hcl -once=maybe", Exit::FlagParse),
        ("task enable -port=many a", Exit::FlagParse),
        ("task paint a", Exit::NoSubcommand),
        ("strat -config-file a.hcl", Exit::UnknownCommand),
        ("frobnicate", Exit::UnknownCommand),
    ] {
        assert_eq!(parse(line).unwrap_err().exit, exit, "{line}");
    }
    // Arguments beyond those that are needed have no effect.
    for line in ["task enable a b", "task disable a b c", "task create -task-file f.hcl x"] {
        assert!(matches!(parse(line), Ok(Invocation::Task(_))), "{line}");
    }
    let said = parse("task create").unwrap_err().message;
    assert!(said.contains("no task file provided"), "{said}");
    let said = parse("task enable").unwrap_err().message;
    assert!(
        said.contains("Error: this command requires one argument: [options] <task name>"),
        "{said}"
    );
    let said = parse("task disable -htp-addr=x a").unwrap_err().message;
    assert!(said.contains("'-htp-addr'") && said.contains("'-http-addr'"), "{said}");
}

#[test]
fn a_file_without_its_flag_is_told_the_flag() {
    for line in ["start sync.hcl", "validate sync.hcl"] {
        let said = parse(line).unwrap_err().message;
        assert!(said.contains("'-config-file=sync.hcl'"), "{said}");
    }
}

#[test]
fn a_look_takes_its_flags() {
    let Invocation::Status(flags) = parse("status -json -http-addr=http://a:1").unwrap() else {
        panic!("no status");
    };
    assert!(
        flags.look.output.json && flags.look.connection.http_addr.as_deref() == Some("http://a:1")
    );
    let Invocation::Task(TaskCommand::Events(flags)) = parse("task events -follow web").unwrap()
    else {
        panic!("no events");
    };
    assert!(flags.follow && !flags.look.output.json && flags.look.named.name() == "web");
    let Invocation::Doctor(flags) = parse("doctor -config-dir d -config-file=a.hcl").unwrap()
    else {
        panic!("no doctor");
    };
    assert_eq!(flags.configuration.paths, ["d", "a.hcl"].map(PathBuf::from));
    for line in ["doctor", "task show", "task events", "task inputs"] {
        assert_eq!(parse(line).unwrap_err().exit, Exit::RequiredFlags, "{line}");
    }
}

#[test]
fn version_and_help_are_no_mistakes() {
    for line in ["-version", "--version", "-v"] {
        assert_eq!(parse(line).unwrap(), Invocation::Version);
    }
    for line in ["-h", "-help", "--help"] {
        assert!(help(line).starts_with("Usage CLI: consul-terraform-sync <command>"), "{line}");
    }
    assert!(help("start -h").contains("-config-file=<file>"), "{}", help("start -h"));
    assert!(!help("-h").contains("-config-file"), "{}", help("-h"));
}

/// Source: Consul-Terraform-Sync 0.9, what its end-to-end tests look for in help.
#[test]
fn help_of_every_command_has_upstreams_form() {
    let usage = |line: &str| help(line).lines().next().unwrap_or_default().to_owned();
    let rest = "[options] <task name>";
    for command in [
        "enable", "disable", "delete", "run", "plan", "approve", "discard", "events", "inputs",
        "show",
    ] {
        let expected = format!("Usage: consul-terraform-sync task {command} {rest}");
        assert_eq!(usage(&format!("task {command} -help")), expected);
    }
    assert_eq!(
        usage("task create -h"),
        "Usage: consul-terraform-sync task create [options] --task-file=<task config>"
    );
    for line in ["status -h", "doctor -h", "task list -h", "task events -h"] {
        let text = help(line);
        assert!(
            text.contains("-json false") && text.lines().all(|line| line.len() <= 78),
            "{text}"
        );
    }
    for command in ["create", "enable", "delete"] {
        let text = help(&format!("task {command} -h"));
        assert!(text.contains("auto-approve false"), "{text}");
        for line in text.lines() {
            assert!(line.len() <= 78, "{line:?}");
        }
    }
    for name in ["create", "delete", "disable", "enable"] {
        assert!(help("task -h").contains(&format!("\n  {name} ")), "{}", help("task -h"));
    }
}

/// Deviation: upstream ends its flags at the first word that is none.
#[test]
fn flags_after_a_name_count_and_further_words_do_not() {
    let Invocation::Task(TaskCommand::Delete(flags)) =
        parse("task delete web -auto-approve -http-addr=http://a:1 more").unwrap()
    else {
        panic!("no deletion");
    };
    assert!(flags.approval.auto_approve);
    assert_eq!(flags.named.connection.http_addr.as_deref(), Some("http://a:1"));
    assert_eq!(flags.named.name(), "web");
}
