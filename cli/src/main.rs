//! The `rackscan` command line program. It parses arguments, runs one command over the other
//! crates, and turns errors into messages and exit codes.
//!
//! ```text
//! main.rs       dispatches to one file of `command`; exit codes
//! args/         the command line (clap): options, values, help texts
//! command/      one file per command; those of `lab` are `bench_*.rs`, `replay.rs` and `stripe.rs`
//! session.rs    what most commands work with: a reachable cluster and an engine over it
//! cluster/      cluster file and node processes of this host; nodes for measurements
//! output/       rows as aligned table, CSV or JSON
//! shell/        the prompt, and its backslash commands as typed; what they do: command/shell.rs
//! memory.rs     memory of queries, and their spill folder
//! failure.rs    errors for the user; logging.rs, progress.rs and note.rs: standard error
//! private.rs    files and folders that only their owner can read
//! ```
//!
//! Invariants
//! - Exit codes: 0 success, 1 failure at run time, 2 wrong usage.
//! - Rows and results go to standard output; progress, timing and errors go to standard error.

#![forbid(unsafe_code)]

#[macro_use]
mod note;

mod args;
mod cluster;
mod command;
mod failure;
mod logging;
mod memory;
mod output;
mod private;
mod progress;
mod session;
mod shell;

use args::{Arguments, Command};
use failure::Failure;
use rackscan_fabric::close_inherited_descriptors;
use session::{Reach, Session};
use std::process::ExitCode;

/// Joins and groupings allocate large pieces for short times, from every thread. The system's
/// allocator returns them to the kernel each time (docs/decisions/0018-allocator.md).
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let arguments = args::parsed();
    if let Command::Node(_) = &arguments.command {
        // Before anything is opened: descriptors inherited by mistake would stay open as long as
        // the node runs, and files that the node creates are readable by its owner only.
        close_inherited_descriptors();
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    }
    match run(&arguments) {
        Ok(()) | Err(Failure::ClosedPipe) => ExitCode::SUCCESS,
        Err(failure @ Failure::Runtime(_)) => {
            note!("error: {failure}");
            ExitCode::FAILURE
        }
        Err(Failure::Said) => ExitCode::FAILURE,
        Err(failure @ Failure::Usage(_)) => {
            note!("error: {failure}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let global = &arguments.global;
    // A node logs at `info`, so that its operator sees that it started. Queries log warnings only,
    // because log lines would mix with their rows.
    let (default, file) = match &arguments.command {
        Command::Node(node) => ("info", node.log_file.as_deref()),
        _ => ("warn", None),
    };
    logging::start(global.log.as_deref(), default, file)?;
    let open = || Session::open(global);
    let open_to_read = || Session::open_to_read(global);
    match &arguments.command {
        Command::Load(load) => command::load::run(&open()?, load),
        Command::Query(query) => {
            // Wrong arguments fail before nodes are started.
            command::query::selected(&query.queries)?;
            command::query::run(&open_to_read()?, query)
        }
        Command::Sql(sql) => command::sql::run(&open_to_read()?, sql),
        Command::Shell(shell) => command::shell::run(&open_to_read()?, shell),
        Command::Explain(explain) => command::explain::run(&open_to_read()?, explain),
        Command::Tables(tables) => command::tables::run(&open_to_read()?, tables),
        Command::Flush(tables) => command::flush::run(&open()?, tables),
        Command::Seal(tables) => command::flush::run_by_old_name(&open()?, tables),
        Command::Drop(table) => command::tables::drop(&open()?, table),
        Command::Scrub(scrub) => command::scrub::run(&Reach::open(global)?, scrub),
        Command::Fsck(fsck) => command::scrub::check(&Reach::open(global)?, fsck),
        Command::Rebuild(rebuild) => command::rebuild::run(global, rebuild),
        Command::Recover(recover) => command::recover::run(global, recover),
        Command::Refresh(refresh) => command::refresh::run(global, refresh),
        Command::Kv(kv) => command::kv::run(global, kv),
        Command::Node(node) => command::node::run(node),
        Command::Cluster(cluster) => command::cluster::run(global, cluster),
        Command::Calibrate(calibrate) => command::calibrate::run(&open()?, calibrate),
        Command::Lab(lab) => command::lab::run(global, lab),
        Command::Bench(bench) => command::lab::bench_by_old_name(global, bench),
        Command::Replay(options) => command::lab::replay_by_old_name(global, options),
        Command::Stripe(options) => command::lab::stripe_by_old_name(options),
    }
}
