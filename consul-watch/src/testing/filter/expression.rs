//! The syntax tree of a filter expression: what the parser makes and the evaluation reads.

/// A selector, such as `Service.Meta.version`.
pub(super) type Selector = Vec<String>;

/// A parsed filter expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expression {
    And(Vec<Self>),
    Or(Vec<Self>),
    Not(Box<Self>),
    Match { selector: Selector, operator: Operator, value: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    NotEqual,
    In,
    NotIn,
    IsEmpty,
    IsNotEmpty,
    Matches,
    NotMatches,
}

impl Operator {
    /// As errors name it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Equal => "Equal",
            Self::NotEqual => "Not Equal",
            Self::In => "In",
            Self::NotIn => "Not In",
            Self::IsEmpty => "Is Empty",
            Self::IsNotEmpty => "Is Not Empty",
            Self::Matches => "Matches",
            Self::NotMatches => "Not Matches",
        }
    }

    /// Returns `true` if it says that something is not so.
    pub(super) fn is_negative(self) -> bool {
        matches!(self, Self::NotEqual | Self::NotIn | Self::IsEmpty | Self::NotMatches)
    }
}
