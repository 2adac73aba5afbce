//! Rules of `.terraformignore`, and what is never uploaded.

use regex::Regex;

/// Rules that always apply, before the user's: data of version control and Terraform, and state,
/// which may hold secrets.
const ALWAYS: &str = ".git/\n.terraform/\n*.tfstate\n*.tfstate.*\n";

/// Rules of a `.terraformignore`: patterns as in `.gitignore`, of which the last match counts.
#[derive(Debug)]
pub(super) struct IgnoreRules {
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    pattern: Regex,
    /// `true` for a rule with `!`: matches are uploaded after all.
    included: bool,
    /// `true` for a rule that matches folders only.
    folders: bool,
}

impl Default for IgnoreRules {
    fn default() -> Self {
        Self::parse("")
    }
}

impl IgnoreRules {
    /// Parses rules; a line that is no pattern excludes nothing.
    pub(super) fn parse(text: &str) -> Self {
        let lines = ALWAYS.lines().chain(text.lines()).map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self { rules: lines.filter_map(Rule::parse).collect() }
    }

    /// Returns `true` if a path within the module is excluded.
    pub(super) fn excludes(&self, path: &str, is_folder: bool) -> bool {
        let fits = |rule: &&Rule| (is_folder || !rule.folders) && rule.pattern.is_match(path);
        // The last match counts, as in git.
        let last = self.rules.iter().rev().find(fits);
        last.is_some_and(|rule| !rule.included)
    }
}

impl Rule {
    fn parse(line: &str) -> Option<Self> {
        let (line, included) = line.strip_prefix('!').map_or((line, false), |rest| (rest, true));
        let (line, folders) = line.strip_suffix('/').map_or((line, false), |rest| (rest, true));
        let anchored = line.contains('/');
        let pattern = expression(line.trim_start_matches('/'), anchored);
        Some(Self { pattern: Regex::new(&pattern).ok()?, included, folders })
    }
}

/// Translates a pattern into a regular expression; one without a slash matches in any folder.
fn expression(pattern: &str, anchored: bool) -> String {
    // A slash anywhere but at the end anchors the pattern to the root.
    let mut expression = String::from(if anchored { "^" } else { "(^|/)" });
    let mut rest = pattern;
    while let Some(character) = rest.chars().next() {
        // `**/` also matches no folder at all.
        let (piece, length) = if rest.starts_with("**/") {
            ("(.*/)?".to_owned(), 3)
        } else if rest.starts_with("**") {
            (".*".to_owned(), 2)
        } else {
            match character {
                '*' => ("[^/]*".to_owned(), 1),
                '?' => ("[^/]".to_owned(), 1),
                other => (regex::escape(&other.to_string()), other.len_utf8()),
            }
        };
        expression.push_str(&piece);
        rest = rest.get(length..).unwrap_or_default();
    }
    expression.push('$');
    expression
}

#[cfg(test)]
mod tests {
    use super::IgnoreRules;

    #[test]
    fn state_and_what_terraform_keeps_are_never_uploaded() {
        let rules = IgnoreRules::default();
        for path in ["terraform.tfstate", "a/x.tfstate", "x.tfstate.backup"] {
            assert!(rules.excludes(path, false), "{path}");
        }
        assert!(rules.excludes(".git", true) && rules.excludes("a/.terraform", true));
        for path in ["main.tf", ".gitignore", "a/.hidden"] {
            assert!(!rules.excludes(path, false), "{path}");
        }
    }

    #[test]
    fn patterns_mean_what_they_mean_to_git() {
        let rules =
            IgnoreRules::parse("# no\n*.md\n!README.md\n/top\ndocs/**/x?.txt\nbuild/\n\n[\n");
        for (path, folder, excluded) in [
            ("a/b.md", false, true),
            ("README.md", false, false),
            ("top", false, true),
            ("a/top", false, false),
            ("docs/x1.txt", false, true),
            ("docs/a/b/x2.txt", false, true),
            ("docs/x12.txt", false, false),
            ("build", true, true),
            ("a/build", true, true),
            ("build", false, false),
            ("[", false, true),
        ] {
            assert_eq!(rules.excludes(path, folder), excluded, "{path}");
        }
    }
}
