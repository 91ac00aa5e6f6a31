//! Signatures of Standard Webhooks: `v1`, HMAC-SHA256 over id, time and body. Each secret adds a
//! signature, so that a receiver can change from one secret to the next.

use std::fmt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

/// Minimum length of a secret, in bytes.
const SHORTEST: usize = 16;

/// The secrets to sign with. They are never shown.
#[derive(Clone, Default)]
pub(crate) struct Secrets(Vec<hmac::Key>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secrets", self.0.len())
    }
}

impl Secrets {
    /// Reads secrets from a file, one per line, and from the environment, separated by spaces.
    pub(crate) fn load(file: Option<&Path>, env: Option<&str>) -> Result<Self, String> {
        let mut keys = Vec::new();
        if let Some(path) = file {
            let name = path.display();
            let text = std::fs::read_to_string(path)
                .map_err(|error| format!("--webhook-secret-file {name}: {error}"))?;
            crate::http::auth::private(path)
                .map_err(|error| format!("--webhook-secret-file {error}"))?;
            for (at, line) in text.lines().enumerate() {
                let line = line.trim();
                if line.is_empty() || line.starts_with('#') {
                    continue;
                }
                let key = key(line).map_err(|why| format!("{name}, line {}: {why}", at + 1))?;
                keys.push(key);
            }
            if keys.is_empty() {
                return Err(format!("--webhook-secret-file {name} holds no secret"));
            }
        }
        for word in env.unwrap_or_default().split_whitespace() {
            keys.push(key(word).map_err(|why| format!("WINDLASS_WEBHOOK_SECRET: {why}"))?);
        }
        Ok(Self(keys))
    }

    /// The header `webhook-signature`; `None` without secrets.
    pub(super) fn sign(&self, id: &str, seconds: i64, body: &str) -> Option<String> {
        let content = format!("{id}.{seconds}.{body}");
        let sign = |key: &hmac::Key| {
            format!("v1,{}", STANDARD.encode(hmac::sign(key, content.as_bytes())))
        };
        let signatures: Vec<String> = self.0.iter().map(sign).collect();
        (!signatures.is_empty()).then(|| signatures.join(" "))
    }
}

/// Parses a secret: `whsec_` and base64, or any text.
fn key(text: &str) -> Result<hmac::Key, String> {
    let bytes = match text.strip_prefix("whsec_") {
        Some(encoded) => STANDARD
            .decode(encoded)
            .map_err(|_| "the text after `whsec_` is not base64".to_owned())?,
        None => text.into(),
    };
    if bytes.len() < SHORTEST {
        return Err(format!("a secret has at least {SHORTEST} bytes"));
    }
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checked with another implementation of HMAC.
    #[test]
    fn a_message_is_signed_as_others_sign_it() {
        let env = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let secrets = Secrets::load(None, Some(env)).unwrap();
        let body = r#"{"test": 2432232314}"#;
        let signed = secrets.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(signed.as_deref(), Some(expected));
        let both = format!("a-secret-of-twenty-b {env}");
        let both = Secrets::load(None, Some(&both)).unwrap();
        let signed = both.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body).unwrap();
        assert_eq!(signed.split(' ').count(), 2);
        assert!(signed.ends_with(expected) && !signed.starts_with(expected));
        assert_eq!(Secrets::default().sign("a", 1, ""), None);
    }

    #[test]
    fn a_bad_secret_is_refused_without_being_shown() {
        for bad in ["short", "whsec_???", "whsec_c2hvcnQ="] {
            let refused = Secrets::load(None, Some(bad)).unwrap_err();
            assert!(!refused.contains("short") && !refused.contains("c2hvcnQ"), "{refused}");
        }
        let secrets = Secrets::load(None, Some("a-secret-of-twenty-b")).unwrap();
        assert_eq!(format!("{secrets:?}"), "1 secrets");
    }
}
