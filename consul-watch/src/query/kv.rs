//! Queries of the KV store: one key, the pairs of a prefix, and its keys.

use std::time::Duration;

use crate::{
    Answer, Client, Query, QueryOptions, Result,
    query::{Position, QueryKey, Scope, Subject, common_setters, is_local},
    types::KvPair,
};

/// The pair of a key; `None` while it is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct KvGet {
    key: String,
    options: QueryOptions,
}

impl KvGet {
    /// The key with this name.
    pub fn new(key: impl Into<String>) -> Self {
        Self { key: key.into(), options: QueryOptions::default() }
    }

    common_setters!();
}

impl Query for KvGet {
    type Value = Option<KvPair>;

    fn key(&self) -> QueryKey {
        QueryKey::new("kv.get", &(&self.key, self.options.canonical()))
    }

    fn scope(&self) -> Scope {
        if is_local(&self.options) { Scope::KvKey(self.key.clone()) } else { Scope::Opaque }
    }

    fn subject(&self) -> Subject<'_> {
        Subject::path(&self.key).within(self.options.datacenter.as_deref())
    }

    async fn fetch(
        &self,
        client: &Client,
        position: &Position,
        wait: Duration,
    ) -> Result<Answer<Self::Value>> {
        client.kv_get(&self.key, &self.options.at(position, wait)).await
    }
}

/// All keys that begin with a prefix, with their values, in the order of their bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct KvList {
    prefix: String,
    options: QueryOptions,
}

impl KvList {
    /// The keys that begin with `prefix`; an empty one is all keys.
    pub fn new(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), options: QueryOptions::default() }
    }

    common_setters!();
}

impl Query for KvList {
    type Value = Vec<KvPair>;

    fn key(&self) -> QueryKey {
        QueryKey::new("kv.list", &(&self.prefix, self.options.canonical()))
    }

    fn scope(&self) -> Scope {
        if is_local(&self.options) { Scope::KvPrefix(self.prefix.clone()) } else { Scope::Opaque }
    }

    fn subject(&self) -> Subject<'_> {
        Subject::path(&self.prefix).within(self.options.datacenter.as_deref())
    }

    async fn fetch(
        &self,
        client: &Client,
        position: &Position,
        wait: Duration,
    ) -> Result<Answer<Self::Value>> {
        let answer = client.kv_list(&self.prefix, &self.options.at(position, wait)).await?;
        Ok(answer.map(|mut pairs| {
            pairs.sort_by(|a, b| a.key.cmp(&b.key));
            pairs
        }))
    }
}

/// The names of all keys that begin with a prefix, without their values.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct KvKeys {
    prefix: String,
    separator: Option<String>,
    options: QueryOptions,
}

impl KvKeys {
    /// The keys that begin with `prefix`; an empty one is all keys.
    pub fn new(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), separator: None, options: QueryOptions::default() }
    }

    /// Cuts names after the separator's first occurrence past the prefix, each once.
    pub fn separator(mut self, separator: impl Into<String>) -> Self {
        self.separator = Some(separator.into());
        self
    }

    common_setters!();
}

impl Query for KvKeys {
    type Value = Vec<String>;

    fn key(&self) -> QueryKey {
        QueryKey::new("kv.keys", &(&self.prefix, &self.separator, self.options.canonical()))
    }

    fn scope(&self) -> Scope {
        if is_local(&self.options) { Scope::KvPrefix(self.prefix.clone()) } else { Scope::Opaque }
    }

    fn subject(&self) -> Subject<'_> {
        Subject::path(&self.prefix).within(self.options.datacenter.as_deref())
    }

    async fn fetch(
        &self,
        client: &Client,
        position: &Position,
        wait: Duration,
    ) -> Result<Answer<Self::Value>> {
        client
            .kv_keys(&self.prefix, self.separator.as_deref(), &self.options.at(position, wait))
            .await
    }
}
