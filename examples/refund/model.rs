//! The model that decides.

use std::{env, time::Duration};

use anyhow::{Context, bail};
use serde_json::{Value, json};

/// Shorter than the timeout of the effect that asks, and than the patience of the story.
const TIMEOUT: Duration = Duration::from_secs(45);

/// Who answers.
pub(crate) enum Model {
    /// Says the same thing to everybody: the story then needs no network and no key.
    Scripted,
    /// An OpenAI-compatible endpoint.
    Endpoint { http: ureq::Agent, url: String, name: String, key: String },
}

impl Model {
    /// The endpoint that the environment names, or the scripted model.
    pub(crate) fn from_env() -> anyhow::Result<Model> {
        let get = |name| env::var(name).ok().filter(|value| !value.is_empty());
        match (get("DURABLE_LLM_URL"), get("DURABLE_LLM_MODEL"), get("DURABLE_LLM_KEY")) {
            (None, None, None) => Ok(Model::Scripted),
            (Some(url), Some(name), Some(key)) => {
                let http = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).build().into();
                Ok(Model::Endpoint { http, url: format!("{}/chat/completions", url.trim_end_matches('/')), name, key })
            }
            _ => bail!("DURABLE_LLM_URL, DURABLE_LLM_MODEL and DURABLE_LLM_KEY go together: set all of them, or none"),
        }
    }

    /// For people.
    pub(crate) fn name(&self) -> &str {
        match self {
            Model::Scripted => "a scripted model",
            Model::Endpoint { name, .. } => name,
        }
    }

    /// One stateless call.
    pub(crate) fn answer(&self, task: &str, question: &str) -> anyhow::Result<String> {
        let Model::Endpoint { http, url, name, key } = self else {
            return Ok(r#"{"clause": 2, "percent": 100}"#.to_owned());
        };
        let body = json!({
            "model": name,
            "messages": [{ "role": "system", "content": task }, { "role": "user", "content": question }],
        });
        let mut answer = http.post(url).header("Authorization", format!("Bearer {key}")).send_json(body)?;
        let answer: Value = answer.body_mut().read_json()?;
        let content = answer["choices"][0]["message"]["content"].as_str();
        Ok(content.with_context(|| format!("no chat completion: {answer}"))?.to_owned())
    }
}
