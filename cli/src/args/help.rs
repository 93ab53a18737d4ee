//! Writes the text of `rackscan --help`, which lists the commands in groups.

use super::{Arguments, old_names, used_options};
use clap::{Command, CommandFactory, FromArgMatches, error::ErrorKind};

/// All visible commands, grouped by purpose.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Query", &["query", "sql", "shell", "explain"]),
    ("Data", &["load", "tables", "drop", "flush", "refresh", "kv"]),
    ("Cluster", &["cluster", "node", "calibrate", "scrub", "fsck", "rebuild", "recover"]),
    ("Laboratory", &["lab"]),
];

/// Parses the arguments of this process. Exits with the help text or an error message if there is
/// nothing to run.
pub(crate) fn parsed() -> Arguments {
    old_names::warn_options(
        std::env::args_os().skip(1).collect::<Vec<_>>().iter().map(|word| word.as_os_str()),
    );
    let mut command = used_options::hidden(grouped(Arguments::command()));
    let matches = command.get_matches_mut();
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if let Some(text) = used_options::without_effect(&matches, &arguments) {
        let (path, _) = used_options::path_of(&matches);
        let of_name = |of: Command, name: &&str| of.find_subcommand(name).cloned().unwrap_or(of);
        path.iter().fold(command, of_name).error(ErrorKind::ArgumentConflict, text).exit();
    }
    arguments
}

fn grouped(command: Command) -> Command {
    let mut groups = String::new();
    for (title, names) in GROUPS {
        groups.push_str(&format!("\n\n{title}:"));
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            groups.push_str(&format!("\n  {name:<10} {about}"));
        }
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}{groups}\n\nOptions:\n{{options}}{{after-help}}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visible(command: &Command) -> impl Iterator<Item = &Command> {
        command.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help")
    }

    #[test]
    fn every_command_is_listed_once_in_one_line() {
        let command = Arguments::command();
        let mut listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let mut known: Vec<&str> = visible(&command).map(Command::get_name).collect();
        listed.sort_unstable();
        known.sort_unstable();
        assert_eq!(listed, known);
        let help = grouped(command).render_help().to_string();
        for name in listed {
            let line = help.lines().find(|line| line.starts_with(&format!("  {name} ")));
            assert!(line.is_some_and(|line| (20..=90).contains(&line.len())), "{name}: {line:?}");
        }
        assert!(help.contains("\nLaboratory:\n  lab "), "{help}");
    }

    #[test]
    fn every_command_shows_an_example() {
        let mut left = vec![Arguments::command()];
        let mut without = Vec::new();
        while let Some(command) = left.pop() {
            let inner: Vec<Command> = visible(&command).cloned().collect();
            let help = command.get_after_help().or_else(|| command.get_after_long_help());
            let has_example = help.is_some_and(|help| help.to_string().contains("  rackscan "));
            if !has_example && inner.is_empty() {
                without.push(command.get_name().to_owned());
            }
            left.extend(inner);
        }
        assert!(without.is_empty(), "no example: {without:?}");
    }
}
