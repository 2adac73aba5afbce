//! The shapes of queries that a client call and an order say everything about.

/// Puts an answer into its order.
pub(super) fn settle<T>(mut value: T, order: impl FnOnce(&mut T)) -> T {
    order(&mut value);
    value
}

/// A query without a parameter of its own.
macro_rules! plain_query {
    (
        $(#[$doc:meta])*
        $name:ident -> $value:ty, $key:literal, $call:ident, $order:expr
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        #[must_use]
        pub struct $name {
            options: $crate::QueryOptions,
        }

        impl $name {
            /// With nothing set.
            pub fn new() -> Self {
                Self::default()
            }

            $crate::query::common_setters!();
        }

        impl $crate::Query for $name {
            type Value = $value;

            fn key(&self) -> $crate::query::QueryKey {
                $crate::query::QueryKey::new($key, &(self.options.canonical(),))
            }

            fn subject(&self) -> $crate::query::Subject<'_> {
                $crate::query::Subject::default().within(self.options.datacenter.as_deref())
            }

            async fn fetch(
                &self,
                client: &$crate::Client,
                position: &$crate::query::Position,
                wait: std::time::Duration,
            ) -> $crate::Result<$crate::Answer<Self::Value>> {
                let answer = client.$call(&self.options.at(position, wait)).await?;
                Ok(answer.map(|value| $crate::query::simple::settle(value, $order)))
            }
        }
    };
}

/// A query with one name.
macro_rules! named_query {
    (
        $(#[$doc:meta])*
        $name:ident($(#[$param_doc:meta])* $param:ident) -> $value:ty, $key:literal,
        $scope:expr, |$client:ident, $options:ident| $call:expr, $order:expr
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[must_use]
        pub struct $name {
            $param: String,
            options: $crate::QueryOptions,
        }

        impl $name {
            $(#[$param_doc])*
            pub fn new($param: impl Into<String>) -> Self {
                Self { $param: $param.into(), options: $crate::QueryOptions::default() }
            }

            $crate::query::common_setters!();
        }

        impl $crate::Query for $name {
            type Value = $value;

            fn key(&self) -> $crate::query::QueryKey {
                let parameters = (&self.$param, self.options.canonical());
                $crate::query::QueryKey::new($key, &parameters)
            }

            fn scope(&self) -> $crate::query::Scope {
                if $crate::query::is_local(&self.options) {
                    let scope: fn(&str) -> $crate::query::Scope = $scope;
                    scope(&self.$param)
                } else {
                    $crate::query::Scope::Opaque
                }
            }

            fn subject(&self) -> $crate::query::Subject<'_> {
                let name = self.$param.as_str();
                let subject = match stringify!($param) {
                    "service" => $crate::query::Subject::service(name),
                    _ => $crate::query::Subject::object(name),
                };
                subject.within(self.options.datacenter.as_deref())
            }

            async fn fetch(
                &self,
                $client: &$crate::Client,
                position: &$crate::query::Position,
                wait: std::time::Duration,
            ) -> $crate::Result<$crate::Answer<Self::Value>> {
                let $options = &self.options.at(position, wait);
                let $param = self.$param.as_str();
                let answer = $call.await?;
                Ok(answer.map(|value| $crate::query::simple::settle(value, $order)))
            }
        }
    };
}

pub(super) use {named_query, plain_query};
