//! Refuses options that a command does not use, and hides those of all commands in its help
//! (decision 0060).
//!
//! Invariants
//! - Every command is in [`used`]. A test compares it with the command line.
//! - Only words of the command line are refused. Variables of the environment are meant for all
//!   commands, and defaults for none in particular.

use super::{
    Arguments, Bench, Command, Lab,
    unused::{Given, Unused},
};
use clap::{ArgMatches, Command as Clap};

/// Which nodes, and by which wire.
const NODES: &[&str] = &["data", "cluster", "wire"];
/// Those, and threads that ask them.
const STATUSES: &[&str] = &["data", "cluster", "wire", "threads"];
/// Those, and what reading the pages of lost nodes takes.
const PAGES: &[&str] = &["data", "cluster", "wire", "threads", "tolerate_unavailable"];
/// An engine over the nodes.
const ENGINE: &[&str] = &[
    "data",
    "cluster",
    "wire",
    "threads",
    "engine_cache",
    "memory",
    "spill_folder",
    "spill_limit",
    "tolerate_unavailable",
];
/// An engine over nodes of the command's own.
const OWN_ENGINE: &[&str] = &["threads", "memory", "spill_folder", "spill_limit", "tolerate_unavailable"];

/// The options of all commands, other than `log`, that a command uses; `None` if there is no such
/// command.
fn used(path: &[&str]) -> Option<&'static [&'static str]> {
    Some(match path {
        ["load", "tpch" | "parquet" | "csv"] => ENGINE,
        ["query" | "sql" | "shell" | "explain" | "tables" | "drop" | "flush" | "seal"] => ENGINE,
        ["refresh" | "calibrate"] => ENGINE,
        ["scrub" | "fsck" | "rebuild"] => PAGES,
        ["recover"] | ["cluster", _] => STATUSES,
        ["kv", _] => NODES,
        ["node"] => &[],
        ["replay"] | ["lab", "replay"] => NODES,
        ["stripe"] | ["lab", "stripe" | "paper"] => &[],
        ["lab" | "bench", measured] => match *measured {
            "tpch" | "refresh" | "refresh-streams" | "degraded" => ENGINE,
            "rebuild" => OWN_ENGINE,
            "placement" => &["wire", "threads", "memory", "spill_folder", "spill_limit"],
            "query-io" => &["wire"],
            "io" => &["cluster"],
            "fabric" | "inbox" | "ramp" | "ramp-stress" | "parity" | "scan" | "xor" | "answer" | "device" => {
                &[]
            }
            _ => return None,
        },
        _ => return None,
    })
}

/// Hides in the help of each command the options of all commands that it does not use.
pub(super) fn hidden(mut command: Clap) -> Clap {
    let shared: Vec<_> = command.get_arguments().filter(|option| option.is_global_set()).cloned().collect();
    let names: Vec<String> = command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect();
    for name in &names {
        command = command.mut_subcommand(name, |inner| within(inner, &shared, &[name]));
    }
    command
}

fn within(mut command: Clap, shared: &[clap::Arg], path: &[&str]) -> Clap {
    let names: Vec<String> = command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect();
    for name in &names {
        let path: Vec<&str> = path.iter().copied().chain([name.as_str()]).collect();
        command = command.mut_subcommand(name, |inner| within(inner, shared, &path));
    }
    if !names.is_empty() {
        return command;
    }
    let used = used(path).unwrap_or_default();
    let is_hidden = |option: &&clap::Arg| {
        let id = option.get_id().as_str();
        id != "log" && !used.contains(&id)
    };
    command.args(shared.iter().filter(is_hidden).map(|option| option.clone().hide(true)))
}

/// The names of the command and the commands above it, and the options given to it.
pub(super) fn path_of(matches: &ArgMatches) -> (Vec<&str>, &ArgMatches) {
    let (mut path, mut inner) = (Vec::new(), matches);
    while let Some((name, of)) = inner.subcommand() {
        path.push(name);
        inner = of;
    }
    (path, inner)
}

/// Why an option of the command line has no effect, if one has none.
pub(super) fn without_effect(matches: &ArgMatches, arguments: &Arguments) -> Option<String> {
    let (path, inner) = path_of(matches);
    let used = used(&path).unwrap_or_default();
    let given = Given::new(inner);
    let unused = ENGINE.iter().find(|option| !used.contains(option) && given.is(option));
    let (option, why) = match unused {
        Some(option) => (*option, "this command does not use it".to_owned()),
        None => of_the_command(&arguments.command, arguments.global.cluster.is_some(), given)
            .into_iter()
            .find(|rule| rule.is_unused && given.is(rule.option))
            .map(|rule| (rule.option, rule.why.to_owned()))?,
    };
    let option = option.replace('_', "-");
    let command = path.join(" ");
    Some(format!(
        "--{option} has no effect: {why}; `rackscan {command} --help` lists the options of the command"
    ))
}

/// The options of a command that may have no effect beside others.
fn of_the_command(command: &Command, has_cluster: bool, given: Given<'_>) -> Vec<Unused> {
    match command {
        Command::Lab(Lab::Bench(bench)) | Command::Bench(bench) => match bench {
            Bench::Device(options) => options.unused(),
            Bench::Io(options) => options.unused(has_cluster),
            Bench::Fabric(options) => options.common.unused(),
            Bench::Inbox(options) => options.unused(),
            Bench::Parity(options) => options.unused(),
            Bench::Ramp(options) => options.unused(),
            Bench::RampStress(options) => options.unused(),
            _ => Vec::new(),
        },
        Command::Lab(Lab::Replay(options)) | Command::Replay(options) => options.unused(given),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, FromArgMatches};

    /// The paths of all commands that do something.
    fn paths(command: &Clap, path: &[String]) -> Vec<Vec<String>> {
        let inner = command.get_subcommands().filter(|inner| inner.get_name() != "help");
        let inner: Vec<_> = inner
            .flat_map(|inner| {
                let path: Vec<String> = path.iter().cloned().chain([inner.get_name().to_owned()]).collect();
                paths(inner, &path)
            })
            .collect();
        if inner.is_empty() { vec![path.to_vec()] } else { inner }
    }

    fn refused(words: &str) -> Option<String> {
        let command = hidden(Arguments::command());
        let matches = command.try_get_matches_from(words.split(' ')).unwrap();
        without_effect(&matches, &Arguments::from_arg_matches(&matches).unwrap())
    }

    #[test]
    fn every_command_says_which_options_it_uses() {
        let all = paths(&Arguments::command(), &[]);
        assert!(all.len() > 40, "{all:?}");
        for path in all {
            let words: Vec<&str> = path.iter().map(String::as_str).collect();
            assert!(used(&words).is_some(), "{path:?}");
        }
        let known: Vec<_> = Arguments::command()
            .get_arguments()
            .filter(|option| option.is_global_set() && option.get_id() != "log")
            .map(|option| option.get_id().to_string())
            .collect();
        assert_eq!(known, ENGINE, "an option of all commands that no command uses");
    }

    #[test]
    fn an_option_that_a_command_does_not_use_is_refused_wherever_it_stands() {
        for words in [
            "rackscan lab xor --cluster /nonexistent",
            "rackscan --wire tcp lab io",
            "rackscan lab ramp --threads 4",
            "rackscan kv get k --memory 1GiB",
            "rackscan --engine-cache 1MiB cluster status",
        ] {
            let text = refused(words).unwrap_or_default();
            assert!(text.contains("has no effect") && text.contains("--help"), "{words}: {text}");
        }
        for words in ["rackscan --data d sql x", "rackscan kv get k --wire tcp --log info", "rackscan lab io"]
        {
            assert_eq!(refused(words), None, "{words}");
        }
    }

    #[test]
    fn an_option_that_others_leave_without_effect_is_refused() {
        for (words, option) in [
            ("rackscan lab io --io-threads 8", "--io-threads"),
            ("rackscan lab io --node 1", "--node"),
            ("rackscan lab io --cluster c.toml --bridges static", "--bridges"),
            ("rackscan lab io --cluster c.toml --data d", "--data"),
            ("rackscan lab io --modes local --wires tcp", "--wires"),
            ("rackscan lab io --bridges dynamic --modes wire --io pread", "--io"),
            ("rackscan lab io --bridges static --reactors 2", "--reactors"),
            ("rackscan lab io --modes wire --fio", "--fio"),
            ("rackscan lab io --verbs a@b", "--verbs"),
            ("rackscan lab fabric --verbs a@b,c@d", "--verbs"),
            ("rackscan lab parity --to memory --file-size 1GiB", "--file-size"),
            ("rackscan lab ramp --workloads ycsb-a --read-shares 0.5", "--read-shares"),
            ("rackscan lab replay --compare a b --depth 4", "--depth"),
            ("rackscan lab replay t.csv --folder . --data d", "--data"),
            ("rackscan lab replay t.csv --file-size 1GiB", "--file-size"),
            ("rackscan lab replay t.csv --io-threads 4 --bridge dynamic", "--io-threads"),
            ("rackscan lab replay t.csv --io-threads 4 --local", "--io-threads"),
            ("rackscan lab io --modes local --io pread --depths 1 --io-threads 4", "--io-threads"),
            ("rackscan lab io --modes local,remote --bridges static --io pread", "--io"),
            ("rackscan lab io --modes local,wire --cache 1MiB", "--cache"),
            ("rackscan lab inbox --memory-only --repeat 3", "--repeat"),
        ] {
            let text = refused(words).unwrap_or_default();
            assert!(text.starts_with(option), "{words}: {text:?}");
        }
        for words in [
            "rackscan lab io --io-threads 8 --io pread",
            "rackscan lab io --cluster c.toml --node 1 --wires tcp",
            "rackscan lab io --io-threads 8 --bridges static",
            "rackscan lab replay --compare a b",
            "rackscan lab replay t.csv --io-threads 4 --bridge static --data d",
            "rackscan lab replay t.csv --io-threads 4 --bridge reactor",
            "rackscan --threads 2 cluster status",
        ] {
            assert_eq!(refused(words), None, "{words}");
        }
    }

    #[test]
    fn the_help_of_a_command_shows_only_what_it_uses() {
        let mut command = hidden(Arguments::command());
        command.build();
        let mut help = |path: &[&str]| {
            let inner = path.iter().fold(&mut command, |of, name| of.find_subcommand_mut(name).unwrap());
            inner.render_long_help().to_string()
        };
        let io = help(&["lab", "io"]);
        assert!(io.contains("--sizes") && io.contains("--log"));
        assert!(!io.contains("--data") && !io.contains("--spill-folder"), "{io}");
        assert!(help(&["sql"]).contains("--spill-folder") && help(&["kv", "get"]).contains("--cluster"));
    }
}
