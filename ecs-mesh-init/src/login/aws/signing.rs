//! Signs the two AWS requests inside a bearer token, in the spelling that Consul's servers verify.

use std::{collections::BTreeMap, time::SystemTime};

use aws_credential_types::Credentials;
use aws_sigv4::{
    http_request::{SignableBody, SignableRequest, SigningSettings, sign},
    sign::v4,
};
use aws_smithy_runtime_api::client::identity::Identity;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

use super::AwsCredentials;
use crate::{Error, Result};

const STS_BODY: &str = "Action=GetCallerIdentity&Version=2011-06-15";
const CONTENT_TYPE: &str = "application/x-www-form-urlencoded; charset=utf-8";
const SERVER_ID: &str = "X-Consul-IAM-ServerID";
const USER_AGENT: &str = concat!("ecs-mesh-init/", env!("CARGO_PKG_VERSION"));

/// Inputs of a bearer token.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SigningInput {
    /// Credentials to sign with.
    pub credentials: AwsCredentials,
    /// Region of the STS endpoint.
    pub region: String,
    /// URL of the STS endpoint.
    pub sts_url: String,
    /// Value of the header `X-Consul-IAM-ServerID`, on both requests.
    pub server_id: Option<String>,
    /// Time of the signature.
    pub time: SystemTime,
    pub(super) entity: Option<Entity>,
}

impl SigningInput {
    /// Creates inputs for the region's STS, without a request for the entity.
    pub fn new(credentials: AwsCredentials, region: String, time: SystemTime) -> Self {
        // AWS China has a domain of its own; no region prefix but `cn-` uses it.
        let china = if region.starts_with("cn-") { ".cn" } else { "" };
        let sts_url = format!("https://sts.{region}.amazonaws.com{china}/");
        Self { credentials, region, sts_url, server_id: None, time, entity: None }
    }

    /// Uses another STS endpoint. Trailing slashes are ignored.
    pub fn set_sts_endpoint(&mut self, endpoint: &str) {
        // Exactly one slash: an endpoint with slashes at its end must not become `//` (fixed
        // upstream in 0.9.1).
        self.sts_url = format!("{}/", endpoint.trim_end_matches('/'));
    }

    /// Adds a signed request for the role or user of this ARN.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] for the ARN of anything else.
    pub fn set_entity(&mut self, arn: &str) -> Result<()> {
        self.entity = Some(Entity::of_arn(arn)?);
        Ok(())
    }
}

/// IAM role or user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entity {
    action: &'static str,
    parameter: &'static str,
    name: String,
    url: &'static str,
    region: &'static str,
}

impl Entity {
    /// Parses an ARN that STS returned.
    pub(super) fn of_arn(arn: &str) -> Result<Self> {
        let not_an_entity =
            |kind: &str| Error::input(format!("entity {kind} is not an IAM role or IAM user"));
        let fields: Vec<&str> = arn.splitn(6, ':').collect();
        let &[_arn, partition, _service, _region, _account, resource] = fields.as_slice() else {
            return Err(Error::input(format!("{arn:?} is not an ARN")));
        };
        let (kind, rest) = resource.split_once('/').unwrap_or((resource, ""));
        let (action, parameter, name) = match kind {
            // A path precedes the name of a role or user; a session follows that of an assumed
            // role. STS leaves the path out.
            "role" => ("GetRole", "RoleName", rest.rsplit('/').next()),
            "assumed-role" => ("GetRole", "RoleName", rest.split('/').next()),
            "user" => ("GetUser", "UserName", rest.rsplit('/').next()),
            other => return Err(not_an_entity(other)),
        };
        // IAM is global: one endpoint and signing region for each AWS partition.
        let (url, region) = match partition {
            "aws-cn" => ("https://iam.cn-north-1.amazonaws.com.cn/", "cn-north-1"),
            "aws-us-gov" => ("https://iam.us-gov.amazonaws.com/", "us-gov-west-1"),
            _ => ("https://iam.amazonaws.com/", "us-east-1"),
        };
        match name.filter(|name| !name.is_empty()) {
            Some(name) => Ok(Self { action, parameter, name: name.to_owned(), url, region }),
            None => Err(not_an_entity(resource)),
        }
    }

    fn body(&self) -> String {
        let name: String = self.name.bytes().map(form_encoded).collect();
        format!("Action={}&{}={name}&Version=2010-05-08", self.action, self.parameter)
    }
}

/// Percent-encodes one byte of a form's value.
fn form_encoded(byte: u8) -> String {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    }
}

/// Signed request, to be sent or to be embedded in another.
pub(super) struct Signed {
    pub(super) url: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl Signed {
    /// Renders the headers as Consul reads them: each name with a list of values.
    ///
    /// The server decodes them into Go's `http.Header` as they are, and looks them up by their
    /// canonical names: another spelling counts as a missing header.
    fn headers_json(&self) -> String {
        let headers: BTreeMap<String, [&str; 1]> =
            self.headers.iter().map(|(name, value)| (canonical(name), [value.as_str()])).collect();
        json!(headers).to_string()
    }
}

/// Creates the bearer token: a signed request to STS, which may embed one to IAM.
///
/// # Errors
///
/// [`Error::Login`] when a request cannot be signed.
///
/// Source: consul-awsauth 0.2 `iamauth/util.go`, `iamauth/token.go`.
pub fn bearer_token(input: &SigningInput) -> Result<SecretString> {
    let entity = input.entity.as_ref().map(|entity| iam_request(input, entity)).transpose()?;
    let request = sts_request(input, entity.as_ref())?;
    let token = json!({
        "iam_http_request_method": "POST",
        "iam_request_body": STANDARD.encode(&request.body),
        "iam_request_headers": STANDARD.encode(request.headers_json()),
        "iam_request_url": STANDARD.encode(&request.url),
    });
    Ok(SecretString::from(token.to_string()))
}

fn iam_request(input: &SigningInput, entity: &Entity) -> Result<Signed> {
    signed(input, "iam", entity.region, entity.url, entity.body(), Vec::new())
}

/// Signs the request to STS, with the one to IAM in its headers.
pub(super) fn sts_request(input: &SigningInput, entity: Option<&Signed>) -> Result<Signed> {
    let mut headers = Vec::new();
    if let Some(entity) = entity {
        headers = vec![
            ("X-Consul-IAM-GetEntity-Method".to_owned(), "POST".to_owned()),
            ("X-Consul-IAM-GetEntity-URL".to_owned(), entity.url.clone()),
            ("X-Consul-IAM-GetEntity-Headers".to_owned(), entity.headers_json()),
            ("X-Consul-IAM-GetEntity-Body".to_owned(), entity.body.clone()),
        ];
    }
    signed(input, "sts", &input.region, &input.sts_url, STS_BODY.to_owned(), headers)
}

fn signed(
    input: &SigningInput,
    service: &str,
    region: &str,
    url: &str,
    body: String,
    extra: Vec<(String, String)>,
) -> Result<Signed> {
    const STEP: &str = "signing a request";
    // Consul sends these on as they are; AWS refuses a request whose signed headers were changed.
    let mut headers = vec![
        ("Content-Length".to_owned(), body.len().to_string()),
        ("Content-Type".to_owned(), CONTENT_TYPE.to_owned()),
        ("User-Agent".to_owned(), USER_AGENT.to_owned()),
    ];
    headers.extend(extra);
    if let Some(id) = &input.server_id {
        // On both requests, so that a bearer token for one Consul cannot be replayed to another.
        headers.push((SERVER_ID.to_owned(), id.clone()));
    }
    let credentials = &input.credentials;
    let session = credentials.session_token.as_ref().map(|token| token.expose_secret().to_owned());
    let identity: Identity = Credentials::new(
        credentials.access_key_id.as_str(),
        credentials.secret_access_key.expose_secret(),
        session,
        None,
        "ecs-mesh-init",
    )
    .into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region(region)
        .name(service)
        .time(input.time)
        .settings(SigningSettings::default())
        .build()
        .map_err(|error| Error::login(STEP, false, error))?
        .into();
    let named = headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let request = SignableRequest::new("POST", url, named, SignableBody::Bytes(body.as_bytes()))
        .map_err(|error| Error::login(STEP, false, error))?;
    let (instructions, _signature) =
        sign(request, &params).map_err(|error| Error::login(STEP, false, error))?.into_parts();
    for (name, value) in instructions.headers() {
        headers.push((name.to_owned(), value.to_owned()));
    }
    Ok(Signed { url: url.to_owned(), headers, body })
}

/// Converts a header's name to Go's canonical form: the first letter and each letter after a hyphen
/// in upper case, all others in lower case, such as `X-Consul-Iam-Serverid`.
fn canonical(name: &str) -> String {
    let mut upper = true;
    name.chars()
        .map(|letter| {
            let shown =
                if upper { letter.to_ascii_uppercase() } else { letter.to_ascii_lowercase() };
            upper = letter == '-';
            shown
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::Value;

    use super::*;

    fn input() -> SigningInput {
        let credentials = AwsCredentials {
            access_key_id: "AKIDEXAMPLE".into(),
            secret_access_key: "planted-secret-key".into(),
            session_token: Some("session".into()),
        };
        let time = SystemTime::UNIX_EPOCH + Duration::from_mins(24_015_636);
        SigningInput::new(credentials, "us-west-2".into(), time)
    }

    /// Decodes the four members, and the headers.
    fn read(input: &SigningInput) -> (Vec<String>, Value) {
        let token: Value =
            serde_json::from_str(bearer_token(input).unwrap().expose_secret()).unwrap();
        assert_eq!(token.as_object().unwrap().len(), 4);
        assert_eq!(token["iam_http_request_method"], "POST");
        let part = |name: &str| {
            String::from_utf8(STANDARD.decode(token[name].as_str().unwrap()).unwrap()).unwrap()
        };
        let headers = serde_json::from_str(&part("iam_request_headers")).unwrap();
        (vec![part("iam_request_url"), part("iam_request_body")], headers)
    }

    #[test]
    fn a_token_holds_a_signed_request_to_sts() {
        let (parts, headers) = read(&input());
        assert_eq!(
            parts,
            ["https://sts.us-west-2.amazonaws.com/", "Action=GetCallerIdentity&Version=2011-06-15"]
        );
        let names: Vec<&String> = headers.as_object().unwrap().keys().collect();
        assert_eq!(
            names,
            [
                "Authorization",
                "Content-Length",
                "Content-Type",
                "User-Agent",
                "X-Amz-Date",
                "X-Amz-Security-Token"
            ]
        );
        assert_eq!(headers["Content-Type"][0], "application/x-www-form-urlencoded; charset=utf-8");
        assert_eq!(headers["X-Amz-Date"][0], "20150830T123600Z");
        let authorization = headers["Authorization"][0].as_str().unwrap();
        assert!(
            authorization.starts_with(
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-west-2/sts/aws4_request, \
                 SignedHeaders=content-length;content-type;host;x-amz-date;x-amz-security-token, Signature="
            ),
            "{authorization}"
        );
        assert!(!format!("{:?}", input()).contains("planted"));
    }

    #[test]
    fn the_entity_and_the_server_id_are_signed_on_both_requests() {
        let mut input = input();
        input.server_id = Some("consul.example".into());
        input.set_entity("arn:aws:sts::123456789012:assumed-role/my-role/session").unwrap();
        let (_parts, headers) = read(&input);
        assert_eq!(headers["X-Consul-Iam-Getentity-Method"][0], "POST");
        assert_eq!(headers["X-Consul-Iam-Getentity-Url"][0], "https://iam.amazonaws.com/");
        assert_eq!(
            headers["X-Consul-Iam-Getentity-Body"][0],
            "Action=GetRole&RoleName=my-role&Version=2010-05-08"
        );
        let inner = headers["X-Consul-Iam-Getentity-Headers"][0].as_str().unwrap();
        let inner: Value = serde_json::from_str(inner).unwrap();
        for (headers, scope) in [(&headers, "us-west-2/sts"), (&inner, "us-east-1/iam")] {
            assert_eq!(headers["X-Consul-Iam-Serverid"][0], "consul.example");
            let authorization = headers["Authorization"][0].as_str().unwrap();
            assert!(authorization.contains("x-consul-iam-serverid"), "{authorization}");
            assert!(authorization.contains(scope), "{authorization}");
        }
    }

    #[test]
    fn entities_of_arns() {
        let body = |arn: &str| Entity::of_arn(arn).map(|entity| entity.body());
        assert_eq!(
            body("arn:aws:iam::1:role/a/path/name").unwrap(),
            "Action=GetRole&RoleName=name&Version=2010-05-08"
        );
        assert_eq!(
            body("arn:aws:iam::1:user/a+b").unwrap(),
            "Action=GetUser&UserName=a%2Bb&Version=2010-05-08"
        );
        let error = body("arn:aws:sts::1:federated-user/x").unwrap_err().to_string();
        assert_eq!(error, "entity federated-user is not an IAM role or IAM user");
        assert!(body("nothing").is_err() && body("arn:aws:iam::1:root").is_err());
        assert!(body("arn:aws:iam::1:role/").is_err());
        assert_eq!(
            Entity::of_arn("arn:aws-cn:sts::1:assumed-role/r/s").unwrap().region,
            "cn-north-1"
        );
    }

    #[test]
    fn endpoints_end_in_one_slash() {
        let mut input = input();
        for endpoint in ["https://sts.example", "https://sts.example/", "https://sts.example//"] {
            input.set_sts_endpoint(endpoint);
            assert_eq!(input.sts_url, "https://sts.example/");
        }
        let china = SigningInput::new(input.credentials, "cn-north-1".into(), input.time);
        assert_eq!(china.sts_url, "https://sts.cn-north-1.amazonaws.com.cn/");
    }
}
