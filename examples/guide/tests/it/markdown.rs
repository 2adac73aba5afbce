//! What the tests need of a Markdown page: its blocks of code, links and headings.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

/// A fenced block of code.
#[derive(Debug)]
pub(crate) struct Block {
    /// Line of the page at which the fence stands.
    pub(crate) line: usize,
    /// The words behind the fence.
    pub(crate) info: String,
    pub(crate) text: String,
}

/// How a block is checked; the words of each are documented in the guide's `about.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Compiled, and run unless it says `no_run`.
    Rust,
    /// Commands and what they print.
    Console {
        /// `true` if a command is repeated until it prints what is shown.
        until: bool,
        /// Exit status of the last command.
        status: i32,
    },
    /// A configuration of Consul-Terraform-Sync, given to `validate`.
    Sync,
    /// A `CONSUL_ECS_CONFIG_JSON`, or a task definition that has some.
    Ecs,
    /// Lines of a `Cargo.toml`.
    Dependencies,
    /// A file that a later command of the page uses.
    File,
    /// Not run, and the words behind say why.
    Text,
}

impl Block {
    /// Reads the words behind the fence.
    ///
    /// # Errors
    ///
    /// What is wrong with them.
    pub(crate) fn kind(&self) -> Result<Kind, String> {
        let words: Vec<&str> = self.info.split_whitespace().collect();
        let file = words.iter().any(|word| word.starts_with("file="));
        let plain: Vec<&str> =
            words.iter().filter(|word| !word.starts_with("file=")).copied().collect();
        match plain.as_slice() {
            ["rust" | "rust,no_run" | "rust,should_panic" | "rust,compile_fail"] => Ok(Kind::Rust),
            ["console", rest @ ..] => {
                let mut kind = (false, 0);
                for word in rest {
                    match word.strip_prefix("status=") {
                        Some(status) => {
                            kind.1 = status.parse().map_err(|_no_number| "no exit status")?;
                        }
                        None if *word == "until" => kind.0 = true,
                        None => return Err(format!("unknown word {word}")),
                    }
                }
                Ok(Kind::Console { until: kind.0, status: kind.1 })
            }
            ["hcl" | "json", "sync"] => Ok(Kind::Sync),
            ["json", "ecs"] => Ok(Kind::Ecs),
            ["toml", "dependencies"] => Ok(Kind::Dependencies),
            ["hcl" | "json" | "text" | "sh" | "ini"] if file => Ok(Kind::File),
            ["text" | "ini", why @ ..] if why.len() >= 2 => Ok(Kind::Text),
            ["text"] => Err("say in two words or more why it is not run".to_owned()),
            _ => Err("nothing is known that checks such a block".to_owned()),
        }
    }

    /// Returns the file that the block stands for.
    pub(crate) fn file(&self) -> Option<&str> {
        self.info.split_whitespace().find_map(|word| word.strip_prefix("file="))
    }

    /// Splits a console block into commands and what each prints. A line that begins with
    /// `$ ` is a command, one with `> ` goes on with it.
    pub(crate) fn commands(&self) -> Vec<(String, String)> {
        let mut commands: Vec<(String, String)> = Vec::new();
        for line in self.text.lines() {
            match (line.strip_prefix("$ "), commands.last_mut()) {
                (Some(command), _) => commands.push((command.to_owned(), String::new())),
                (None, Some((command, shown))) => match line.strip_prefix("> ") {
                    Some(more) if shown.is_empty() => {
                        command.push('\n');
                        command.push_str(more);
                    }
                    _ => {
                        shown.push_str(line);
                        shown.push('\n');
                    }
                },
                (None, None) => panic!("a console block begins with `$ `, not {line:?}"),
            }
        }
        commands
    }
}

/// A link or image, with the line that holds it.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) line: usize,
    pub(crate) target: String,
}

fn parser(text: &str) -> Parser<'_> {
    Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_HEADING_ATTRIBUTES)
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

/// Returns the fenced blocks of a page.
pub(crate) fn blocks(text: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut within = false;
    for (event, range) in parser(text).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                within = true;
                let line = line_of(text, range.start);
                found.push(Block { line, info: info.to_string(), text: String::new() });
            }
            Event::Start(Tag::CodeBlock(CodeBlockKind::Indented)) => {
                panic!(
                    "line {}: fence this block, so that it says what checks it",
                    line_of(text, range.start)
                )
            }
            Event::Text(more) if within => found.last_mut().unwrap().text.push_str(&more),
            Event::End(TagEnd::CodeBlock) => within = false,
            _ => {}
        }
    }
    found
}

/// Returns the targets of all links and images of a page, also those in its HTML.
pub(crate) fn links(text: &str) -> Vec<Link> {
    let mut found = Vec::new();
    for (event, range) in parser(text).into_offset_iter() {
        let line = || line_of(text, range.start);
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                found.push(Link { line: line(), target: dest_url.to_string() });
            }
            Event::Html(html) | Event::InlineHtml(html) => {
                for attribute in ["src=\"", "srcset=\"", "href=\""] {
                    for after in html.split(attribute).skip(1) {
                        let target = after.split('"').next().unwrap_or_default().to_owned();
                        found.push(Link { line: line(), target });
                    }
                }
            }
            _ => {}
        }
    }
    found
}

/// Returns the anchors of a page's headings, as GitHub and mdBook make them.
pub(crate) fn anchors(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut heading: Option<String> = None;
    for event in parser(text) {
        match event {
            Event::Start(Tag::Heading { level, .. }) => {
                assert!(level <= HeadingLevel::H6);
                heading = Some(String::new());
            }
            Event::Text(more) | Event::Code(more) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&more);
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                let slug = slug(&heading.take().unwrap_or_default());
                let before = found.iter().filter(|known| **known == slug).count();
                found.push(slug.clone());
                if before > 0 {
                    found.push(format!("{slug}-{before}"));
                }
            }
            _ => {}
        }
    }
    found
}

fn slug(heading: &str) -> String {
    heading
        .trim()
        .to_lowercase()
        .chars()
        .filter_map(|character| match character {
            ' ' => Some('-'),
            '-' | '_' => Some(character),
            _ if character.is_alphanumeric() => Some(character),
            _ => None,
        })
        .collect()
}

#[test]
fn blocks_that_nothing_checks_are_refused() {
    for info in ["", "rust,ignore", "sh", "yaml", "hcl", "text", "console loud", "text why"] {
        let block = Block { line: 1, info: info.to_owned(), text: String::new() };
        assert!(block.kind().is_err(), "{info}");
    }
}

#[test]
fn commands_are_taken_apart() {
    let text = "$ one \\\n> two\nshown\n\n$ three\n".to_owned();
    let block = Block { line: 1, info: "console".to_owned(), text };
    let commands = block.commands();
    assert_eq!(commands[0], ("one \\\ntwo".to_owned(), "shown\n\n".to_owned()));
    assert_eq!(commands[1], ("three".to_owned(), String::new()));
}

#[test]
fn anchors_are_those_of_github() {
    let text = "# A `b_c` d-e\n## Where it's at, really?\n## Twice\n## Twice\n";
    assert_eq!(anchors(text), ["a-b_c-d-e", "where-its-at-really", "twice", "twice", "twice-1"]);
}
