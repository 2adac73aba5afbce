//! Templated policies: rules that servers since 1.17 bring along.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::testing::{
    acl::Rules,
    refused::Refused,
    state::{
        format::content_hash,
        names::{DATACENTER, is_identity_name},
    },
};

/// Rules with a place for a name.
#[derive(Debug)]
pub(in crate::testing) struct Template {
    pub(in crate::testing) id: u8,
    pub(in crate::testing) name: &'static str,
    pub(in crate::testing) description: &'static str,
    /// With `{{.Name}}` where the name goes.
    pub(in crate::testing) rules: &'static str,
    pub(in crate::testing) named: bool,
}

/// The part that servers add to a synthetic policy's id: the hash of nothing.
pub(in crate::testing) const EMPTY_HASH: &str = "6c62272e07bb014262b821756295c58d";

pub(in crate::testing) const TEMPLATES: &[Template] = &[
    Template {
        id: 6,
        name: "builtin/api-gateway",
        description: "Gives the token or role permissions for a Consul api gateway",
        rules: "mesh = \"read\"\nnode_prefix \"\" {\n\tpolicy = \"read\"\n}\nservice_prefix \"\" {\n\tpolicy = \"read\"\n}\nservice \"{{.Name}}\" {\n\tpolicy = \"write\"\n}",
        named: true,
    },
    Template {
        id: 5,
        name: "builtin/dns",
        description: "Gives the token or role permissions for the Consul DNS to query services in the network.",
        rules: "\nnode_prefix \"\" {\n\tpolicy = \"read\"\n}\nservice_prefix \"\" {\n\tpolicy = \"read\"\n}\nquery_prefix \"\" {\n\tpolicy = \"read\"\n}",
        named: false,
    },
    Template {
        id: 4,
        name: "builtin/node",
        description: "Gives the token or role permissions for a register an agent/node into the catalog. A node is typically a consul agent but can also be a physical server, cloud instance or a container.",
        rules: "\nnode \"{{.Name}}\" {\n\tpolicy = \"write\"\n}\nservice_prefix \"\" {\n\tpolicy = \"read\"\n}",
        named: true,
    },
    Template {
        id: 9,
        name: "builtin/nomad-client",
        description: "Gives the token or role permissions required for integration with a nomad client.",
        rules: "agent_prefix \"\" {\n  policy = \"read\"\n}\nnode_prefix \"\" {\n  policy = \"read\"\n}\nservice_prefix \"\" {\n  policy = \"write\"\n}\nkey_prefix \"\" {\n  policy = \"read\"\n}",
        named: false,
    },
    Template {
        id: 7,
        name: "builtin/nomad-server",
        description: "Gives the token or role permissions required for integration with a nomad server.",
        rules: "\nacl = \"write\"\nagent_prefix \"\" {\n  policy = \"read\"\n}\nnode_prefix \"\" {\n  policy = \"read\"\n}\nservice_prefix \"\" {\n  policy = \"write\"\n}",
        named: false,
    },
    Template {
        id: 3,
        name: "builtin/service",
        description: "Gives the token or role permissions to register a service and discover services in the Consul catalog. It also gives the specified service's sidecar proxy the permission to discover and route traffic to other services.",
        rules: "\nservice \"{{.Name}}\" {\n\tpolicy = \"write\"\n}\nservice \"{{.Name}}-sidecar-proxy\" {\n\tpolicy = \"write\"\n}\nservice_prefix \"\" {\n\tpolicy = \"read\"\n}\nnode_prefix \"\" {\n\tpolicy = \"read\"\n}",
        named: true,
    },
    Template {
        id: 8,
        name: "builtin/workload-identity",
        description: "Gives the token or role permissions for a specific workload identity.",
        rules: "identity \"{{.Name}}\" {\n\tpolicy = \"write\"\n}",
        named: true,
    },
];

impl Template {
    pub(in crate::testing) fn find(name: &str) -> Option<&'static Self> {
        TEMPLATES.iter().find(|template| template.name == name)
    }

    /// The JSON schema of what fills it; empty where nothing does.
    pub(in crate::testing) fn schema(&self) -> String {
        if !self.named {
            return String::new();
        }
        let (one, last) = if self.name == "builtin/workload-identity" {
            ("  ", "      ")
        } else {
            ("\t", "\t\t\t\t")
        };
        let two = one.repeat(2);
        format!(
            "{{\n{one}\"type\": \"object\",\n{one}\"properties\": {{\n{two}\"name\": {{ \"type\": \"string\", \"$ref\": \"#/definitions/min-length-one\" }}\n{one}}},\n{one}\"required\": [\"name\"],\n{one}\"definitions\": {{\n{two}\"min-length-one\": {{\n{last}\"type\": \"string\",\n{last}\"minLength\": 1\n{two}}}\n{one}}}\n}}"
        )
    }

    /// Refuses a name that cannot fill it.
    pub(in crate::testing) fn check(&self, name: &str) -> Result<(), String> {
        if !self.named || is_identity_name(name) {
            return Ok(());
        }
        let what = match self.name {
            "builtin/node" => "node identity",
            _ => "service identity",
        };
        Err(format!(
            "validation error for templated policy: {:?}: {what} {name:?} has an invalid name. Only lowercase alphanumeric characters, '-' and '_' are allowed",
            self.name
        ))
    }

    pub(in crate::testing) fn filled(&self, name: &str) -> String {
        self.rules.replace("{{.Name}}", name)
    }

    /// The policy that it stands for.
    pub(in crate::testing) fn synthetic(&self, name: &str) -> Value {
        let rules = self.filled(name);
        let id: String = rules
            .bytes()
            .flat_map(|byte| [byte >> 4, byte & 15])
            .filter_map(|nibble| char::from_digit(u32::from(nibble), 16))
            .collect();
        let id = format!("{id}{EMPTY_HASH}");
        json!({
            "ID": id, "Name": format!("synthetic-policy-{id}"),
            "Description": format!("synthetic policy generated from templated policy: {}", self.name),
            "Rules": rules, "Hash": content_hash(&id), "CreateIndex": 0, "ModifyIndex": 0,
        })
    }
}

/// A template that a token or a role uses.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(in crate::testing) struct TemplatedPolicy {
    #[serde(rename = "TemplateID")]
    pub(in crate::testing) template_id: String,
    pub(in crate::testing) template_name: String,
    pub(in crate::testing) template_variables: Option<Variables>,
    pub(in crate::testing) datacenters: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default)]
pub(in crate::testing) struct Variables {
    #[serde(rename(serialize = "name"))]
    pub(in crate::testing) name: String,
}

impl TemplatedPolicy {
    pub(in crate::testing) fn name(&self) -> &str {
        self.template_variables.as_ref().map_or("", |variables| &variables.name)
    }

    /// Refuses what does not name a template, or does not fill it; `what` holds it.
    pub(in crate::testing) fn check(&self, what: &str) -> Result<(), Refused> {
        let refused = |text: String| Err(Refused::new(500, text));
        if self.template_name.is_empty() {
            return refused(format!(
                "templated policy is missing the template name field on this {what}"
            ));
        }
        match Template::find(&self.template_name) {
            None => {
                refused(format!("no such ACL templated policy with Name {:?}", self.template_name))
            }
            Some(template) => template.check(self.name()).or_else(refused),
        }
    }

    /// The rights that it gives in this datacenter.
    pub(in crate::testing) fn rules(&self) -> Option<Rules> {
        let here =
            self.datacenters.is_empty() || self.datacenters.iter().any(|name| name == DATACENTER);
        let template = Template::find(&self.template_name).filter(|_| here)?;
        Rules::parse(&template.filled(self.name())).ok()
    }

    pub(in crate::testing) fn json(&self) -> Value {
        let id =
            Template::find(&self.template_name).map(|template| template.id).unwrap_or_default();
        let mut value = json!({
            "TemplateID": format!("00000000-0000-0000-0000-0000000000{id:02}"),
            "TemplateName": self.template_name,
        });
        if let Some(fields) = value.as_object_mut() {
            if let Some(variables) = &self.template_variables {
                fields.insert("TemplateVariables".to_owned(), json!(variables));
            }
            if !self.datacenters.is_empty() {
                fields.insert("Datacenters".to_owned(), json!(self.datacenters));
            }
        }
        value
    }
}
