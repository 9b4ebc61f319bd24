//! Values from elsewhere: `${provider:key}` and `${provider:path:key}` in any value of any file.
//!
//! Kafka's providers under Kafka's class names, named by `config.providers` in the worker's file. As
//! there, text around a reference stays, several may stand in one value, what a provider gives isn't
//! looked at again, and nothing escapes a reference. Unlike there, what can't be resolved is an error:
//! it would go on as it is, perhaps as a password. Whatever a provider gives is a secret.

use std::collections::BTreeMap;
use std::env::VarError;
use std::fmt;
use std::path::{Component, Path, PathBuf};

use super::keys::parse_bool;
use super::pattern::Pattern;
use super::problem::ConfigProblem;
use super::properties::Properties;
use super::read::items;
use super::text;

/// The providers of a worker, and what they have given.
#[derive(Default)]
pub(super) struct Providers {
    named: BTreeMap<String, Provider>,
    /// Whether the worker's file can't be used, and so may name any.
    any_may_be_named: bool,
    /// Files that a provider has read.
    files: BTreeMap<PathBuf, Properties>,
    given: Vec<String>,
}

/// Without what they have given.
impl fmt::Debug for Providers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.named.keys();
        f.debug_list().entries(names).finish()
    }
}

enum Provider {
    /// `EnvVarConfigProvider`: variables of the environment whose names match.
    Environment { allowlist: Option<Pattern> },
    /// `FileConfigProvider`: keys of properties files.
    File { allowed: Option<Vec<PathBuf>> },
    /// `DirectoryConfigProvider`: files of folders, each one value.
    Directory {
        allowed: Option<Vec<PathBuf>>,
        trim: bool,
    },
    /// Something is wrong with its own keys, and that is said already.
    Unusable,
}

/// Why a reference has no value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unresolved {
    /// Something is wrong with it.
    Wrong {
        /// What, as the second half of a sentence.
        message: String,
        /// What to do.
        advice: Option<String>,
    },
    /// Its provider can't be used, and that is said already.
    SaidAlready,
}

/// The key that names the providers; those of each begin with it.
pub(super) const PROVIDERS: &str = "config.providers";

const KAFKAS: &str = "org.apache.kafka.common.config.provider.";
const CLASSES: [&str; 3] = [
    "EnvVarConfigProvider",
    "FileConfigProvider",
    "DirectoryConfigProvider",
];

impl Providers {
    /// The providers that a worker's file names; what is wrong goes into `problems`.
    pub(super) fn of(worker: &Properties, problems: &mut Vec<ConfigProblem>) -> Self {
        let names = items(worker.get(PROVIDERS).unwrap_or_default());
        let named: BTreeMap<_, _> = names
            .map(|name| (name.to_owned(), Provider::of(name, worker, problems)))
            .collect();
        for (key, _) in worker.with_prefix("config.providers.") {
            let name = key.split('.').next().unwrap_or(key);
            if !named.contains_key(name) {
                let problem = worker.problem(
                    &format!("{PROVIDERS}.{key}"),
                    format!("is ignored: {PROVIDERS} does not name {name}"),
                );
                problems.push(problem.warning());
            }
        }
        Self {
            named,
            ..Self::default()
        }
    }

    /// Those of a worker's file that can't be used, which is said already: none can be asked, and none is missing.
    pub(super) fn not_known() -> Self {
        Self {
            any_may_be_named: true,
            ..Self::default()
        }
    }

    /// The text with what its references stand for; `None` where it has none.
    ///
    /// # Errors
    /// The first reference that can't be resolved.
    pub(super) fn resolve(&mut self, text: &str) -> Result<Option<String>, Unresolved> {
        let mut resolved = String::new();
        let mut rest = text;
        while let Some(reference) = Reference::first(rest) {
            resolved.push_str(reference.before);
            resolved.push_str(&self.value(&reference)?);
            rest = reference.after;
        }
        if rest.len() == text.len() {
            return Ok(None);
        }
        resolved.push_str(rest);
        Ok(Some(resolved))
    }

    fn value(&mut self, reference: &Reference<'_>) -> Result<String, Unresolved> {
        let name = reference.provider;
        let Some(provider) = self.named.get(name) else {
            return Err(match self.any_may_be_named {
                true => Unresolved::SaidAlready,
                false => unknown(name),
            });
        };
        if matches!(provider, Provider::Unusable) {
            return Err(Unresolved::SaidAlready);
        }
        let value = provider.value(reference, &mut self.files);
        let value = value.map_err(|message| Unresolved::Wrong {
            message,
            advice: None,
        })?;
        self.given.push(value.trim().to_owned());
        Ok(value)
    }

    /// The text with `[hidden]` for each value of a provider that is long enough to be a secret.
    pub(super) fn without_values(&self, text: &str) -> Option<String> {
        let mut hidden = None;
        for value in self.given.iter().filter(|value| value.len() >= SECRET_MIN) {
            let text = hidden.as_deref().unwrap_or(text);
            if text.contains(value.as_str()) {
                hidden = Some(text.replace(value.as_str(), super::problem::HIDDEN));
            }
        }
        hidden
    }
}

/// Shorter ones are counts and switches: hiding them would make texts unreadable, and protect nothing.
const SECRET_MIN: usize = 4;

fn unknown(name: &str) -> Unresolved {
    let class = match name {
        "env" => CLASSES[0],
        "file" => CLASSES[1],
        "dir" | "directory" => CLASSES[2],
        _ => "...",
    };
    Unresolved::Wrong {
        message: format!(
            "refers to the provider {name}, which {PROVIDERS} in the worker's file doesn't name"
        ),
        advice: Some(format!(
            "add {PROVIDERS}={name} and {PROVIDERS}.{name}.class={KAFKAS}{class} to the worker's file"
        )),
    }
}

impl Provider {
    fn of(name: &str, worker: &Properties, problems: &mut Vec<ConfigProblem>) -> Self {
        let before = problems.len();
        let class_key = format!("{PROVIDERS}.{name}.class");
        let class = worker.get(&class_key).unwrap_or_default().trim();
        let known = class.strip_prefix(KAFKAS).unwrap_or(class);
        let mut parameters = Parameters {
            prefix: format!("{PROVIDERS}.{name}.param."),
            worker,
            problems,
        };
        let provider = match known {
            "EnvVarConfigProvider" => {
                parameters.check(&["allowlist.pattern"]);
                Self::Environment {
                    allowlist: parameters.pattern("allowlist.pattern"),
                }
            }
            "FileConfigProvider" => {
                parameters.check(&["allowed.paths"]);
                Self::File {
                    allowed: parameters.paths("allowed.paths"),
                }
            }
            "DirectoryConfigProvider" => {
                parameters.check(&["allowed.paths", "trim"]);
                Self::Directory {
                    allowed: parameters.paths("allowed.paths"),
                    trim: parameters.flag("trim"),
                }
            }
            _ => {
                let what = if class.is_empty() {
                    "must be set"
                } else {
                    "is not a provider that is known here"
                };
                let problem = worker.problem(&class_key, what);
                problems.push(problem.advice(format!("known: {}", CLASSES.join(", "))));
                return Self::Unusable;
            }
        };
        let is_usable = problems[before..].iter().all(|problem| !problem.is_error());
        if is_usable { provider } else { Self::Unusable }
    }

    fn value(
        &self,
        reference: &Reference<'_>,
        files: &mut BTreeMap<PathBuf, Properties>,
    ) -> Result<String, String> {
        let key = reference.key;
        match self {
            Self::Unusable => Ok(String::new()),
            Self::Environment { allowlist } => {
                if !reference.path.is_empty() {
                    return Err(
                        "has a path, and the environment has none: write ${env:NAME}".to_owned(),
                    );
                }
                if allowlist.as_ref().is_some_and(|list| !list.matches(key)) {
                    return Err(format!(
                        "{key} does not match the provider's allowlist.pattern"
                    ));
                }
                std::env::var(key).map_err(|error| match error {
                    VarError::NotPresent => format!("the environment has no variable {key}"),
                    VarError::NotUnicode(_) => format!("the variable {key} is no text"),
                })
            }
            Self::File { allowed } => {
                let path = permitted(reference, allowed.as_deref())?;
                if !files.contains_key(&path) {
                    let file = Properties::read(&path, &mut Vec::new());
                    let file = file.map_err(|problem| problem.to_string())?;
                    files.insert(path.clone(), file);
                }
                let value = files.get(&path).and_then(|file| file.get(key));
                let value = value.map(str::to_owned);
                value.ok_or_else(|| format!("{} has no key {key}", path.display()))
            }
            Self::Directory { allowed, trim } => {
                let folder = permitted(reference, allowed.as_deref())?;
                if Path::new(key).file_name() != Some(key.as_ref()) {
                    return Err(format!("{key} is not the name of a file"));
                }
                let file = folder.join(key);
                let text = text::read(&file).map_err(|why| format!("{} {why}", file.display()))?;
                let text = if *trim { text.trim() } else { &text };
                Ok(text.to_owned())
            }
        }
    }
}

/// The path of a reference, if the provider may read there.
fn permitted(reference: &Reference<'_>, allowed: Option<&[PathBuf]>) -> Result<PathBuf, String> {
    if reference.path.is_empty() {
        let provider = reference.provider;
        return Err(format!("has no path: write ${{{provider}:/path:key}}"));
    }
    let path = normal(Path::new(reference.path));
    let is_allowed = |allowed: &[PathBuf]| allowed.iter().any(|allowed| path.starts_with(allowed));
    if allowed.is_none_or(is_allowed) {
        Ok(path)
    } else {
        let path = path.display();
        Err(format!("{path} is not below the provider's allowed.paths"))
    }
}

/// The path without `.` and `..`, as written: links stay.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                normal.pop();
            }
            other => normal.push(other),
        }
    }
    normal
}

/// The parameters of one provider.
struct Parameters<'a> {
    prefix: String,
    worker: &'a Properties,
    problems: &'a mut Vec<ConfigProblem>,
}

impl<'a> Parameters<'a> {
    fn get(&self, name: &str) -> Option<&'a str> {
        let value = self.worker.get(&format!("{}{name}", self.prefix))?.trim();
        (!value.is_empty()).then_some(value)
    }

    fn wrong(&mut self, name: &str, message: impl Into<String>) {
        let key = format!("{}{name}", self.prefix);
        self.problems.push(self.worker.problem(&key, message));
    }

    fn check(&mut self, known: &[&str]) {
        let prefix = self.prefix.clone();
        for (name, _) in self.worker.with_prefix(&prefix) {
            if !known.contains(&name) {
                let known = known.join(", ");
                self.wrong(
                    name,
                    format!("is not a parameter of this provider: it has {known}"),
                );
            }
        }
    }

    fn pattern(&mut self, name: &str) -> Option<Pattern> {
        let pattern = Pattern::new(self.get(name)?);
        pattern.map_err(|message| self.wrong(name, message)).ok()
    }

    fn paths(&mut self, name: &str) -> Option<Vec<PathBuf>> {
        let paths: Vec<_> = items(self.get(name)?).map(PathBuf::from).collect();
        if let Some(relative) = paths.iter().find(|path| !path.is_absolute()) {
            let message = format!("{} is not an absolute path", relative.display());
            self.wrong(name, message);
        }
        Some(paths.iter().map(|path| normal(path)).collect())
    }

    fn flag(&mut self, name: &str) -> bool {
        let Some(value) = self.get(name) else {
            return false;
        };
        let flag = parse_bool(value);
        if flag.is_none() {
            self.wrong(name, "must be true or false");
        }
        flag.unwrap_or_default()
    }
}

/// `${provider:[path:]key}`, with what is around it.
struct Reference<'a> {
    before: &'a str,
    provider: &'a str,
    path: &'a str,
    key: &'a str,
    after: &'a str,
}

impl<'a> Reference<'a> {
    /// The first one; what is between `${` and `}` without a colon is none.
    fn first(text: &'a str) -> Option<Self> {
        for (start, opening) in text.match_indices("${") {
            let inside = &text[start + opening.len()..];
            let (inside, after) = inside.split_once('}')?;
            if let Some((provider, rest)) = inside.split_once(':') {
                let (path, key) = rest.split_once(':').unwrap_or(("", rest));
                return Some(Self {
                    before: &text[..start],
                    provider,
                    path,
                    key,
                    after,
                });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Providers under their usual names.
    fn providers(more: &str) -> (Providers, Vec<String>) {
        let text = format!(
            "config.providers=env, file,dir\nconfig.providers.env.class={KAFKAS}EnvVarConfigProvider\n\
             config.providers.file.class={KAFKAS}FileConfigProvider\nconfig.providers.dir.class=DirectoryConfigProvider\n{more}"
        );
        let worker = Properties::parse(Path::new("w"), &text, &mut Vec::new()).unwrap();
        let mut problems = Vec::new();
        let providers = Providers::of(&worker, &mut problems);
        (
            providers,
            problems.iter().map(ToString::to_string).collect(),
        )
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("sink-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("db.properties"), "user=me\npassword=s3cret\n").unwrap();
        std::fs::write(folder.join("token"), "t0ken\n").unwrap();
        folder
    }

    #[test]
    fn references_are_replaced_as_kafka_replaces_them() {
        let folder = folder("given");
        let at = folder.display();
        let (mut providers, problems) = providers("");
        assert!(problems.is_empty(), "{problems:?}");
        // Set by cargo.
        let package = env!("CARGO_PKG_NAME");
        for (text, expected) in [
            ("${env:CARGO_PKG_NAME}".to_owned(), package.to_owned()),
            // There is no escape.
            (
                "$${env:CARGO_PKG_NAME}}".to_owned(),
                format!("${package}}}"),
            ),
            (
                format!(
                    "a ${{file:{at}/db.properties:user}}:${{file:{at}/db.properties:password}} b"
                ),
                "a me:s3cret b".to_owned(),
            ),
            // A line's end stays.
            (format!("${{dir:{at}:token}}"), "t0ken\n".to_owned()),
        ] {
            assert_eq!(providers.resolve(&text), Ok(Some(expected)), "{text}");
        }
        for text in ["plain", "/tmp/${task}.txt", "${env:OPEN", "$(env:X)"] {
            assert_eq!(providers.resolve(text), Ok(None), "{text}");
        }
        assert_eq!(
            providers
                .without_values("s3cret is me, t0ken isn't")
                .as_deref(),
            Some("[hidden] is me, [hidden] isn't")
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_can_not_be_resolved_is_an_error() {
        let folder = folder("refused");
        let at = folder.display();
        let (mut providers, problems) = providers(&format!(
            "config.providers.env.param.allowlist.pattern=CARGO_.*\n\
             config.providers.file.param.allowed.paths={at}/in\nconfig.providers.dir.param.trim=true\n"
        ));
        assert!(problems.is_empty(), "{problems:?}");
        for (text, says) in [
            (
                "${vault:x}".to_owned(),
                "the provider vault, which config.providers",
            ),
            (
                "${env:CARGO_NO_SUCH}".to_owned(),
                "no variable CARGO_NO_SUCH",
            ),
            (
                "${env:PATH}".to_owned(),
                "does not match the provider's allowlist.pattern",
            ),
            ("${env:a:PATH}".to_owned(), "has a path"),
            (
                "${file:user}".to_owned(),
                "has no path: write ${file:/path:key}",
            ),
            (
                format!("${{file:{at}/in/../db.properties:user}}"),
                "not below the provider's allowed.paths",
            ),
            (format!("${{dir:{at}:../x}}"), "is not the name of a file"),
            (format!("${{dir:{at}:missing}}"), "can't be read"),
        ] {
            let error = providers.resolve(&text).unwrap_err();
            let Unresolved::Wrong { message, .. } = error else {
                panic!("{text}: {error:?}");
            };
            assert!(message.contains(says), "{text}: {message}");
        }
        let trimmed = providers.resolve(&format!("${{dir:{at}:token}}"));
        assert_eq!(trimmed, Ok(Some("t0ken".to_owned())));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn providers_are_checked_before_they_are_asked() {
        for (more, says) in [
            (
                "config.providers.dir.class=com.example.Vault\n",
                "is not a provider that is known here; known: EnvVarConfigProvider",
            ),
            (
                "config.providers.env.param.allowlist.pattern=(\n",
                "is not a pattern",
            ),
            (
                "config.providers.file.param.allowed.paths=etc\n",
                "etc is not an absolute path",
            ),
            (
                "config.providers.dir.param.trim=yes\n",
                "must be true or false",
            ),
            (
                "config.providers.env.param.allowed.paths=/\n",
                "it has allowlist.pattern",
            ),
            (
                "config.providers.vault.class=x\n",
                "config.providers does not name vault",
            ),
        ] {
            let (_, problems) = providers(more);
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].contains(says), "{problems:?}");
        }
    }
}
