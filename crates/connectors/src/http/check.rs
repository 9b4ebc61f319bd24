//! Whether the target can be reached, without a request of a record.

use hyper::Uri;
use sharegroup_sink::{Checked, ConnectorConfig};

use super::config::{AuthConfig, HttpConfig};
use super::response::Answers;
use super::service::Service;

/// Opens a connection, gets a token, looks for the topic of answers.
pub(super) async fn check(config: &ConnectorConfig) -> Checked {
    let mut checked = Checked::default();
    let settings = match HttpConfig::read(config) {
        Ok((settings, _)) => settings,
        Err(problems) => {
            checked.problems = problems;
            return checked;
        }
    };
    let problem = |key: &str, message: String| config.problem(key, message);
    let service = match Service::new(&settings.target, 0) {
        Ok(service) => service,
        Err(reason) => return Checked::failed(problem("auth.type", reason)),
    };
    let origin = &settings.request.origin;
    let reached = match Uri::try_from(format!("{origin}/")) {
        Ok(uri) => service.reach(uri).await.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let through = settings.target.proxy.as_ref();
    let through = through.map_or_else(String::new, |proxy| {
        format!(" through the proxy {}", proxy.address)
    });
    match reached {
        Ok(()) => {
            let tls = if origin.is_https {
                ", its certificate is trusted"
            } else {
                ""
            };
            checked.note(format!("{origin} takes connections{through}{tls}"));
        }
        Err(reason) => {
            let message = format!("no connection to {origin}{through}: {reason}");
            let advice = if origin.is_https {
                "is the server up at that host and port, and its certificate one of https.ssl.truststore.location?"
            } else {
                "is the server up at that host and port, and is it to be http: and not https:?"
            };
            checked.problem(problem(url_key(config), message).advice(advice));
        }
    }
    match service.authorize().await {
        Ok(true) => checked.note("a token was got from oauth2.token.url"),
        Ok(false) => {}
        Err(reason) => {
            let advice = "look at oauth2.token.url, oauth2.client.id and oauth2.client.secret";
            checked.problem(problem("oauth2.token.url", reason).advice(advice));
        }
    }
    if let Some(topic) = &settings.response_topic {
        match Answers::open(topic).await {
            Ok(_) => checked.note(format!("response.topic {} is there", topic.topic)),
            Err(reason) => checked.problem(problem("response.topic", reason)),
        }
    }
    checked.note(match settings.target.auth {
        AuthConfig::None => "whether the server takes records there shows with the first one",
        _ => "whether the server lets these credentials in and takes records there shows with the first one",
    });
    checked
}

/// The key that has the URL, or its other name.
fn url_key(config: &ConnectorConfig) -> &'static str {
    match config.get("http.api.url") {
        Some(_) => "http.api.url",
        None => "http.url",
    }
}
