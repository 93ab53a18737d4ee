//! `rackscan lab paper`: runs the experiments of a paper's figures by other commands of this
//! program, and draws our figures beside the paper's numbers.
//!
//! Invariants
//! - Every figure is drawn from lines that a command printed by this one has written.
//! - An experiment that fails does not keep the others from running; its figures are named on the
//!   page, and the command ends with an error.

use super::signals::stop_on;
use crate::{
    args::PaperArguments,
    failure::{Failure, at_path},
    output::{Cell, TextTable, print_text},
};
use rackscan_lab::{
    Provenance,
    paper::{Measured, Paper, PaperFigure, Points, Step, StepOptions, paper_report, papers},
};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

/// How often a running command is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Lists the papers, or measures and draws the figures of one.
pub(crate) fn run(asked: &PaperArguments) -> Result<(), Failure> {
    let papers = papers().map_err(|error| Failure::Runtime(error.to_string()))?;
    let Some(name) = &asked.name else { return print_text(&listed(&papers).to_string()) };
    let paper = papers.iter().find(|paper| paper.name == name);
    let paper = paper.expect("the command line takes only names of papers");
    let figures = paper.select(&asked.figures).map_err(|unknown| {
        let numbers: Vec<&str> = paper.figures.iter().map(|figure| figure.number.as_str()).collect();
        let numbers = numbers.join(", ");
        Failure::Usage(format!("--figure {unknown}: {name} has no such figure, expected {numbers}"))
    })?;
    let steps = paper.steps_of(&figures);
    let failures = if asked.redraw { Vec::new() } else { measure(asked, &steps)? };
    let mut measured = lines_of_all(&asked.report, &steps)?;
    // Lines of an earlier run must not pass for lines of this one.
    measured.retain(|name, _| !failures.iter().any(|(failed, _)| failed == name));
    if measured.is_empty() {
        let folder = asked.report.display();
        return Err(Failure::Runtime(match failures.first() {
            Some((_, first)) => format!("all experiments failed, the first: {first}"),
            None => format!(
                "{folder}: there are no lines of the experiments of these figures, expected NAME.jsonl"
            ),
        }));
    }
    let page = paper_report(paper, &figures, &measured, &Provenance::now("paper", 0.0));
    let page = page.write(&asked.report)?;
    print_text(&summary(&figures, &measured).to_string())?;
    note!("figures: {}", page.display());
    match failures.first() {
        None => Ok(()),
        Some((_, first)) => {
            Err(Failure::Runtime(format!("{} experiments failed, the first: {first}", failures.len())))
        }
    }
}

/// Figures of all papers, and the commands behind them.
fn listed(papers: &[Paper]) -> TextTable {
    let mut table = TextTable::new(&["paper", "figure", "what it shows", "measured by"]);
    for paper in papers {
        for figure in &paper.figures {
            let steps = paper.steps_of(&[figure]);
            let command =
                |step: &&Step| step.command.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
            let commands: Vec<String> = steps.iter().map(command).collect();
            table.push(vec![
                Cell::from(paper.name.to_owned()),
                Cell::from(figure.number.clone()),
                Cell::from(figure.title.clone()),
                Cell::from(commands.join(", ")),
            ]);
        }
    }
    table
}

fn summary(figures: &[&PaperFigure], measured: &Measured) -> TextTable {
    let mut table = TextTable::new(&["figure", "finding"]);
    for figure in figures {
        table.push(vec![Cell::from(figure.number.clone()), Cell::from(figure.finding_here(measured))]);
    }
    table
}

/// Runs the steps; returns the names of those that failed, and why.
fn measure(asked: &PaperArguments, steps: &[&Step]) -> Result<Vec<(String, String)>, Failure> {
    let stop = stop_on(&[SIGINT, SIGTERM, SIGHUP])?;
    fs::create_dir_all(&asked.report).map_err(at_path(&asked.report))?;
    let work =
        tempfile::Builder::new().prefix("data-").tempdir_in(&asked.report).map_err(at_path(&asked.report))?;
    let mut failures = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        note!("experiment {} of {}: {}", index + 1, steps.len(), step.name);
        // Lines come into the report when they are complete, so that those of an earlier run stay.
        let lines = work.path().join(format!("{}.jsonl", step.name));
        let folder = work.path().join(&step.name);
        fs::create_dir(&folder).map_err(at_path(&folder))?;
        let options = StepOptions { work: &folder, effort: asked.effort, repeat: asked.repeat };
        let (prepare, mut command) = step.commands(options);
        command.extend(["--json".into(), lines.clone().into_os_string()]);
        for words in prepare.iter().chain([&command]) {
            let status = run_command(words, &stop)?;
            if !status.success() {
                // What a failed experiment has measured must not pass for all of it.
                moved(&lines, &lines_of(&asked.report, step).with_extension("partial.jsonl"))?;
            }
            if stop.load(Ordering::Relaxed) {
                return Err(Failure::Runtime("stopped before everything was measured".to_owned()));
            }
            if !status.success() {
                failures.push((step.name.clone(), format!("{} ({status})", shown(words))));
                break;
            }
        }
        moved(&lines, &lines_of(&asked.report, step))?;
    }
    Ok(failures)
}

/// Moves the lines of an experiment, if it has written any.
fn moved(lines: &Path, to: &Path) -> Result<(), Failure> {
    if lines.exists() { fs::rename(lines, to).map_err(at_path(to)) } else { Ok(()) }
}

/// Runs a command of this program, and ends it if this one is asked to end.
fn run_command(words: &[OsString], stop: &AtomicBool) -> Result<ExitStatus, Failure> {
    note!("$ {}", shown(words));
    let program = std::env::current_exe()
        .map_err(|error| Failure::Runtime(format!("cannot find this program: {error}")))?;
    let cannot = |error: std::io::Error| Failure::Runtime(format!("cannot run {}: {error}", shown(words)));
    let mut child = Command::new(program).args(words).spawn().map_err(cannot)?;
    loop {
        if let Some(status) = child.try_wait().map_err(cannot)? {
            return Ok(status);
        }
        if stop.load(Ordering::Relaxed)
            && let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw)
        {
            // It may have ended by itself; then there is nothing to end.
            let _ended = kill_process(pid, Signal::TERM);
            return child.wait().map_err(cannot);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn shown(words: &[OsString]) -> String {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    format!("rackscan {}", words.join(" "))
}

fn lines_of(report: &Path, step: &Step) -> PathBuf {
    report.join(format!("{}.jsonl", step.name))
}

/// The lines of the steps that have any.
fn lines_of_all(report: &Path, steps: &[&Step]) -> Result<Measured, Failure> {
    let mut measured = Measured::new();
    for step in steps {
        let path = lines_of(report, step);
        if path.exists() {
            let points = Points::read(&path)
                .map_err(|error| Failure::Runtime(format!("{}: {error}", path.display())))?;
            measured.insert(step.name.clone(), points);
        }
    }
    Ok(measured)
}
