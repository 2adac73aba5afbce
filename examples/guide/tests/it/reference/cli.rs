//! Commands and flags, as the programs print them.

use super::compare;
use crate::programs::printed;

/// Help of `consul-terraform-sync` and of every command below it.
fn sync(path: &[&str], text: &mut String) {
    let mut arguments = path.to_vec();
    arguments.push("-help");
    let help = printed("consul-terraform-sync", &arguments);
    section("consul-terraform-sync", path, &help, text);
    let (_, commands) = help.split_once("\nCommands:\n").unwrap_or_default();
    let lines = commands.lines().take_while(|line| line.starts_with("  "));
    for name in lines.filter_map(|line| line.split_whitespace().next()) {
        let mut below = path.to_vec();
        below.push(name);
        sync(&below, text);
    }
}

fn section(program: &str, path: &[&str], help: &str, text: &mut String) {
    let title = [&[program], path].concat().join(" ");
    let level = "#".repeat(2 + path.len().min(2));
    let help: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
    *text += &format!("{level} {title}\n\n```text as it prints\n{}\n```\n\n", help.join("\n"));
}

fn page() -> String {
    let mut text =
        "# Commands\n\nEvery program, command and flag, in the words of its own help.\n\n"
            .to_owned();
    sync(&[], &mut text);
    let help = printed("consul-ecs", &["--help"]);
    section("consul-ecs", &[], &help, &mut text);
    for name in commands_of_consul_ecs(&help) {
        section("consul-ecs", &[&name], &printed("consul-ecs", &[&name, "--help"]), &mut text);
    }
    section("resource-server", &[], &printed("resource-server", &["--help"]), &mut text);
    section("resource", &[], &printed("resource", &["--help"]), &mut text);
    text
}

fn commands_of_consul_ecs(help: &str) -> Vec<String> {
    let line = regex::Regex::new(r"(?m)^ {2,4}([a-z][a-z-]+) {2,}").unwrap();
    line.captures_iter(help).map(|found| found[1].to_owned()).collect()
}

#[test]
fn commands_are_those_of_the_programs() {
    let page = page();
    for must in
        ["## resource-server", "### consul-ecs mesh-init", "#### consul-terraform-sync task create"]
    {
        assert!(page.contains(must), "{must}");
    }
    compare("cli.md", &page);
}
