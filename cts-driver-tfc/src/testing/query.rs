//! Parameters of a request's query.

use percent_encoding::percent_decode_str;

/// Returns the parameters of a query, decoded, in their order.
pub(super) fn parameters(query: &str) -> impl Iterator<Item = (String, String)> {
    let decode = |text: &str| {
        let spaced = text.replace('+', " ");
        percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
    };
    query.split('&').filter(|pair| !pair.is_empty()).map(move |pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(name), decode(value))
    })
}

/// Returns the value of a parameter that is given and not empty.
pub(super) fn parameter(query: &str, name: &str) -> Option<String> {
    let mut found = parameters(query).filter(|(key, value)| key == name && !value.is_empty());
    found.next().map(|(_, value)| value)
}

/// Returns the members of a parameter that is a list with commas.
pub(super) fn listed(query: &str, name: &str) -> Vec<String> {
    let value = parameter(query, name).unwrap_or_default();
    let members = value.split(',').map(str::trim).filter(|member| !member.is_empty());
    members.map(str::to_owned).collect()
}

/// Returns the first filter that is none of `served`, in which `N` stands for any number.
pub(super) fn unknown_filter(query: &str, served: &[&str]) -> Option<String> {
    let is_served = |name: &str| {
        let numbered = name.split('[').map(|part| match part.strip_suffix(']') {
            Some(number) if !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit()) => {
                "N]"
            }
            _ => part,
        });
        let numbered = numbered.collect::<Vec<_>>().join("[");
        served.contains(&numbered.as_str())
    };
    let names = parameters(query).map(|(name, _)| name);
    names.filter(|name| name.starts_with("filter[")).find(|name| !is_served(name))
}

/// Returns the pairs of `filter[tagged][N][key]` and `filter[tagged][N][value]`.
///
/// A pair without a value asks for the key alone.
pub(super) fn tagged(query: &str) -> Vec<(String, Option<String>)> {
    let all: Vec<(String, String)> = parameters(query).collect();
    let keys = all.iter().filter_map(|(name, key)| {
        let number = name.strip_prefix("filter[tagged][")?.strip_suffix("][key]")?;
        let wanted = format!("filter[tagged][{number}][value]");
        let value = all.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.clone());
        Some((key.clone(), value.filter(|value| !value.is_empty())))
    });
    keys.collect()
}
