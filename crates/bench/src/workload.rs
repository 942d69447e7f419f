//! A workload: commands, the shape of their load, and its duration.

use std::time::Duration;

use crate::catalog::{self, Test};
use crate::cli::LoadArgs;
use tierce_wire::pedrokv;

use crate::digits::DIGITS_LEN;
use crate::distribution::Distribution;
use crate::engine::{Goal, Load, Pace};
use crate::error::Error;
use crate::memcached::Operation;
use crate::protocol::Protocol;
use crate::ring::Mix;
use crate::template::Template;

const CLIENTS_DEFAULT: u32 = 50;
const REQUESTS_DEFAULT: u64 = 100_000;
const DATA_SIZE_DEFAULT: u32 = 3;
const KEY_PREFIX_DEFAULT: &str = "key:";

/// Pipeline depth for filling a keyspace. Filling is not measured, so it is done the fastest way.
const FILL_PIPELINE: usize = 128;
const FILL_CLIENTS: usize = 8;

/// A test to run.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    pub(crate) title: String,
    pub(crate) load: Load,
    pub(crate) mix: Mix,
}

impl Workload {
    /// Returns the load that sets every key of this workload's keyspace once, in order.
    pub(crate) fn fill(&self) -> (Self, Goal) {
        let load = Load {
            distribution: Distribution::Sequential,
            pipeline: FILL_PIPELINE,
            pace: Pace::Batches,
            clients: FILL_CLIENTS,
            rate: None,
            ..self.load.clone()
        };
        let goal = Goal::Requests(load.keyspace);
        let set = operation(load.protocol, Operation::Set);
        (Self { title: "fill".into(), load, mix: Mix::one(set) }, goal)
    }
}

fn operation(protocol: Protocol, operation: Operation) -> Template {
    match (protocol, operation) {
        (Protocol::Resp, Operation::Set) => Template::new(&["SET", "__key__", "__data__"]),
        (Protocol::Resp, _) => Template::new(&["GET", "__key__"]),
        _ => Template::memcached(protocol, operation),
    }
}

impl LoadArgs {
    /// Returns the load, with redis-benchmark's defaults for missing options.
    pub(crate) fn load(&self) -> Load {
        Load {
            protocol: self.protocol,
            clients: self.clients.unwrap_or(CLIENTS_DEFAULT) as usize,
            threads: self.threads.unwrap_or(1) as usize,
            pipeline: self.window.or(self.pipeline).unwrap_or(1) as usize,
            pace: if self.window.is_some() { Pace::Window } else { Pace::Batches },
            keyspace: self.keyspace.unwrap_or(1),
            key_prefix: self.key_prefix.clone().unwrap_or_else(|| KEY_PREFIX_DEFAULT.into()),
            data_size: self.data_size.unwrap_or(DATA_SIZE_DEFAULT) as usize,
            distribution: self.distribution.unwrap_or(Distribution::Uniform),
            seed: self.seed.unwrap_or(1),
            rate: self.rate.map(|rate| rate as f64),
        }
    }

    /// Returns the end of a test: the user's choice, or `otherwise`.
    pub(crate) fn goal(&self, otherwise: Goal) -> Goal {
        match (self.requests, self.time) {
            (Some(requests), _) => Goal::Requests(requests),
            (None, Some(seconds)) => Goal::Time(Duration::from_secs_f64(seconds)),
            (None, None) => otherwise,
        }
    }

    /// Returns the user's goal, or redis-benchmark's number of requests.
    pub(crate) fn goal_of_single_run(&self) -> Goal {
        self.goal(Goal::Requests(REQUESTS_DEFAULT))
    }

    /// Returns the workloads of a run: one for the command if there is one, else one for the ratio,
    /// else one for each test.
    ///
    /// # Errors
    /// If a test has an unknown name.
    pub(crate) fn workloads(&self, command: &[String]) -> Result<Vec<Workload>, Error> {
        let load = self.load();
        let one = |title: String, mix| Workload { title, load: load.clone(), mix };
        let protocol = self.protocol;
        self.check_frames(&load)?;
        if protocol != Protocol::Resp && !command.is_empty() {
            return Err(Error::Usage("commands are for RESP: leave --protocol out".into()));
        }
        if !command.is_empty() {
            let template = Template::new(command);
            return Ok(vec![one(template.name().to_uppercase(), Mix::one(template))]);
        }
        if let Some((sets, gets)) = self.ratio {
            let set = operation(protocol, Operation::Set);
            let get = operation(protocol, Operation::Get);
            let mix = Mix::ratio((set, sets), (get, gets));
            return Ok(vec![one(format!("SET:GET {sets}:{gets}"), mix)]);
        }
        let names = self.tests.iter().map(String::as_str);
        let names = if self.tests.is_empty() { vec!["set", "get"] } else { names.collect() };
        names
            .into_iter()
            .map(|name| {
                if protocol != Protocol::Resp {
                    let template = self.fixed_test(name)?;
                    return Ok(one(name.to_uppercase(), Mix::one(template)));
                }
                let test = Test::named(name).ok_or_else(|| unknown_test(name))?;
                Ok(one(test.title(), Mix::one(test.template())))
            })
            .collect()
    }
}

impl LoadArgs {
    /// PedroKV has frames of 64 KiB, and one key a request.
    fn check_frames(&self, load: &Load) -> Result<(), Error> {
        let key_len = load.key_prefix.len() + DIGITS_LEN;
        let fits =
            key_len <= pedrokv::KEY_LEN_MAX && load.data_size <= pedrokv::value_len_max(key_len);
        if self.protocol == Protocol::PedroKv && !fits {
            let limit = pedrokv::value_len_max(key_len);
            return Err(Error::Usage(format!(
                "a key of {key_len} bytes and a value of {} do not fit a frame of PedroKV: keys have \
                 at most {} bytes, and values next to this one {limit}",
                load.data_size,
                pedrokv::KEY_LEN_MAX,
            )));
        }
        Ok(())
    }

    fn fixed_test(&self, name: &str) -> Result<Template, Error> {
        let all = [Operation::Set, Operation::Get, Operation::MultiGet(self.multi_keys)];
        let known = if self.protocol == Protocol::PedroKv { &all[..2] } else { &all[..] };
        let found =
            known.iter().copied().find(|operation| operation.name().eq_ignore_ascii_case(name));
        let found = found.ok_or_else(|| {
            let names: Vec<&str> = known.iter().map(|operation| operation.name()).collect();
            let names = names.join(", ");
            Error::Usage(format!("no test of this protocol is named {name:?}; there are {names}"))
        })?;
        Ok(Template::memcached(self.protocol, found))
    }
}

fn unknown_test(name: &str) -> Error {
    Error::Usage(format!("no test is named {name:?}; there are {}", catalog::names()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn titles(args: &LoadArgs, command: &[&str]) -> Vec<String> {
        let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        let workloads = args.workloads(&command).unwrap();
        workloads.into_iter().map(|workload| workload.title).collect()
    }

    #[test]
    fn a_command_goes_before_a_ratio_and_that_before_tests() {
        let mut args = LoadArgs::default();
        assert_eq!(titles(&args, &[]), ["SET", "GET"]);
        args.tests = vec!["Incr".into(), "mset".into()];
        assert_eq!(titles(&args, &[]), ["INCR", "MSET"]);
        args.ratio = Some((1, 10));
        assert_eq!(titles(&args, &[]), ["SET:GET 1:10"]);
        assert_eq!(titles(&args, &["zadd", "z", "1", "__key__"]), ["ZADD"]);
    }

    #[test]
    fn an_unknown_test_is_an_error_that_names_the_known_ones() {
        let args = LoadArgs { tests: vec!["gte".into()], ..LoadArgs::default() };
        let error = args.workloads(&[]).unwrap_err().to_string();
        assert!(error.contains("\"gte\"") && error.contains("set, get, incr"), "{error}");
    }

    #[test]
    fn filling_covers_the_keyspace_once() {
        let args = LoadArgs { keyspace: Some(777), pipeline: Some(5), ..LoadArgs::default() };
        let (fill, goal) = args.workloads(&[]).unwrap()[0].fill();
        assert_eq!(goal, Goal::Requests(777));
        assert_eq!(fill.load.distribution, Distribution::Sequential);
    }
}
