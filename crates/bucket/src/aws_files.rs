//! Reads the files of Amazon's tools, `~/.aws/credentials` and `~/.aws/config`, for settings that the environment does
//! not have.
//!
//! Keys, region and endpoint of a profile are used. A profile that gets its keys from elsewhere (`role_arn`,
//! `sso_...`, `credential_process`) is refused if it is named, and otherwise ignored in favour of the instance role.
//! The files are read once, when the server starts.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Settings of object_store: names of its environment variables, with their values.
pub(crate) type Found = Vec<(&'static str, String)>;

/// Settings of a profile, each with its name in object_store.
const SETTINGS: [(&str, &str); 4] = [
    ("region", "aws_region"),
    ("endpoint_url", "aws_endpoint_url"),
    ("aws_session_token", "aws_session_token"),
    ("aws_access_key_id", "aws_access_key_id"),
];

const SECRET: (&str, &str) = ("aws_secret_access_key", "aws_secret_access_key");

type Profile = BTreeMap<String, String>;

/// Returns the settings that the files add to the environment, which `variable` reads.
pub(crate) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Found, String> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let home = set("HOME").map(PathBuf::from);
    let path = |name: &str, default: &str| {
        set(name).map(PathBuf::from).or_else(|| Some(home.as_ref()?.join(".aws").join(default)))
    };
    let named = set("AWS_PROFILE");
    let name = named.clone().unwrap_or_else(|| "default".into());
    let mut profile = Profile::new();
    for (file, section) in [
        (path("AWS_CONFIG_FILE", "config"), format!("profile {name}")),
        (path("AWS_SHARED_CREDENTIALS_FILE", "credentials"), name.clone()),
    ] {
        let Some(file) = file else { continue };
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(format!("{}: {error}", file.display())),
        };
        profile.extend(section_of(&text, &section));
        if name == "default" && section != name {
            profile.extend(section_of(&text, &name));
        }
    }
    if let Some(name) = named.filter(|_| profile.is_empty()) {
        return Err(format!("AWS_PROFILE is {name}, and the files in ~/.aws have no such profile"));
    }
    let has_keys = set("AWS_ACCESS_KEY_ID").is_some() || set("AWS_SECRET_ACCESS_KEY").is_some();
    choose(&profile, &name, has_keys, set("AWS_PROFILE").is_some(), set)
}

/// Returns the settings of a profile that apply next to the environment.
fn choose(
    profile: &Profile,
    name: &str,
    has_keys: bool,
    is_named: bool,
    set: impl Fn(&str) -> Option<String>,
) -> Result<Found, String> {
    let from_elsewhere = ["role_arn", "credential_process", "sso_session", "sso_start_url"]
        .into_iter()
        .find(|key| profile.contains_key(*key));
    let file_has_keys = profile.contains_key("aws_access_key_id");
    if let Some(key) = from_elsewhere.filter(|_| is_named && !has_keys && !file_has_keys) {
        return Err(format!(
            "the profile {name} has {key}, which is not supported: put keys into the environment, for instance by \
             `aws configure export-credentials --format env`"
        ));
    }
    // Other keys in the environment take precedence over those of a file, unless the profile is named.
    let others = ["AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"];
    let has_other = !is_named && others.into_iter().any(|other| set(other).is_some());
    let region = set("AWS_REGION").or_else(|| set("AWS_DEFAULT_REGION"));
    let endpoint = set("AWS_ENDPOINT_URL").or_else(|| set("AWS_ENDPOINT"));
    let found = SETTINGS.into_iter().chain([SECRET]).filter(|(key, _)| match *key {
        "region" => region.is_none(),
        "endpoint_url" => endpoint.is_none() && set("AWS_ENDPOINT_URL_S3").is_none(),
        _ => !has_keys && !has_other && file_has_keys,
    });
    Ok(found.filter_map(|(key, as_name)| Some((as_name, profile.get(key)?.clone()))).collect())
}

/// Returns the settings of a section. Indented lines are nested settings of the line before, and are left out.
fn section_of(text: &str, section: &str) -> Profile {
    let mut inside = false;
    let mut profile = Profile::new();
    for line in text.lines() {
        let is_indented = line.starts_with([' ', '\t']);
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            let name = rest.split(']').next().unwrap_or_default();
            inside = name.split_whitespace().eq(section.split_whitespace());
        } else if inside
            && !is_indented
            && let Some((key, value)) = line.split_once('=')
        {
            let value = value.split(" #").next().unwrap_or_default().trim();
            profile.insert(key.trim().to_ascii_lowercase(), value.to_owned());
        }
    }
    profile
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tierce_harness::TempDir;

    use super::*;

    const CREDENTIALS: &str = "# keys\n[default]\naws_access_key_id = A\naws_secret_access_key=B\n\n\
         [work]\naws_access_key_id = C\naws_secret_access_key = D/=e+f # mine\naws_session_token = T==\n\
         [elsewhere]\nrole_arn = arn:aws:iam::1:role/x\n";
    const CONFIG: &str = "[default]\nregion = eu-central-1\n[profile  work]\nregion = us-west-2\n\
         s3 =\n  endpoint_url = http://nested\nendpoint_url = https://s3.example.com\n";

    /// Reads settings in an environment given as NAME=value.
    fn with(environment: &[&str]) -> Result<Found, String> {
        let dir = TempDir::new();
        let folder = dir.path().join(".aws");
        fs::create_dir(&folder).expect("a folder");
        fs::write(folder.join("credentials"), CREDENTIALS).expect("a file");
        fs::write(folder.join("config"), CONFIG).expect("a file");
        fs::write(dir.path().join("other"), "[default]\naws_access_key_id=X\n").expect("a file");
        let home = dir.path().display().to_string();
        read(|name| {
            let found =
                environment.iter().find_map(|set| set.strip_prefix(name)?.strip_prefix('='));
            match found {
                Some(value) => Some(value.replace("~", &home)),
                None => (name == "HOME").then(|| home.clone()),
            }
        })
    }

    fn check(environment: &[&str], expected: &[&str]) {
        let mut found: Vec<String> = with(environment)
            .expect("settings")
            .into_iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        found.sort();
        assert_eq!(found, expected, "{environment:?}");
    }

    #[test]
    fn the_environment_goes_before_the_files() {
        let (keys, region) =
            (["aws_access_key_id=A", "aws_secret_access_key=B"], "aws_region=eu-central-1");
        check(&[], &[keys[0], region, keys[1]]);
        check(&["AWS_REGION=x"], &keys);
        check(&["AWS_ACCESS_KEY_ID=env", "AWS_SECRET_ACCESS_KEY=env"], &[region]);
        check(&["AWS_WEB_IDENTITY_TOKEN_FILE=/token"], &[region]);
        check(
            &["AWS_PROFILE=work"],
            &[
                "aws_access_key_id=C",
                "aws_endpoint_url=https://s3.example.com",
                "aws_region=us-west-2",
                "aws_secret_access_key=D/=e+f",
                "aws_session_token=T==",
            ],
        );
        check(
            &["AWS_SHARED_CREDENTIALS_FILE=~/other", "AWS_CONFIG_FILE=~/none"],
            &["aws_access_key_id=X"],
        );
        check(&["HOME=/nowhere"], &[]);
    }

    #[test]
    fn a_profile_that_is_named_must_be_there_and_have_keys() {
        let missing = with(&["AWS_PROFILE=typo"]).expect_err("no such profile");
        assert!(missing.contains("AWS_PROFILE is typo"), "{missing}");
        let elsewhere = with(&["AWS_PROFILE=elsewhere"]).expect_err("no keys");
        assert!(elsewhere.contains("role_arn, which is not supported"), "{elsewhere}");
    }
}
