//! `rackscan lab paper`: runs the experiments of a paper's figures by other commands of this
//! program, and draws our figures beside the paper's numbers.
//!
//! Invariants
//! - Every figure is drawn from lines that a command printed by this one has written.
//! - An experiment that fails does not keep the others from running; its figures are named on the
//!   page, and the command ends with an error.

use crate::{
    args::PaperArguments,
    failure::{Failure, at_path},
    output::{Cell, TextTable, print_text},
};
use rackscan_lab::{
    Provenance,
    paper::{Paper, PaperFigure, Points, Step, StepOptions, paper_report, papers},
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
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
    fs::create_dir_all(&asked.report).map_err(at_path(&asked.report))?;
    let failures = if asked.redraw { Vec::new() } else { measure(asked, &paper.steps_of(&figures))? };
    let mut drawn = Vec::with_capacity(figures.len());
    for figure in figures {
        drawn.push((figure, points_of(asked, figure)?));
    }
    let page = paper_report(paper, &drawn, &Provenance::now("paper", 0.0)).write(&asked.report)?;
    print_text(&summary(&drawn).to_string())?;
    note!("figures: {}", page.display());
    match failures.first() {
        None => Ok(()),
        Some(first) => {
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

fn summary(drawn: &[(&PaperFigure, Points)]) -> TextTable {
    let mut table = TextTable::new(&["figure", "finding"]);
    for (figure, points) in drawn {
        table.push(vec![Cell::from(figure.number.clone()), Cell::from(figure.finding_here(points))]);
    }
    table
}

/// Runs the steps; returns the failures.
fn measure(asked: &PaperArguments, steps: &[&Step]) -> Result<Vec<String>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| Failure::Runtime(format!("cannot watch for signals: {error}")))?;
    }
    let work =
        tempfile::Builder::new().prefix("data-").tempdir_in(&asked.report).map_err(at_path(&asked.report))?;
    let mut failures = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        note!("experiment {} of {}: {}", index + 1, steps.len(), step.name);
        let lines = lines_of(&asked.report, step);
        // Lines of an earlier run must not pass for lines of this one.
        if lines.exists() {
            fs::remove_file(&lines).map_err(at_path(&lines))?;
        }
        let folder = work.path().join(&step.name);
        fs::create_dir(&folder).map_err(at_path(&folder))?;
        let options = StepOptions { work: &folder, effort: asked.effort, repeat: asked.repeat };
        let (prepare, mut command) = step.commands(options);
        command.extend(["--json".into(), lines.into_os_string()]);
        for words in prepare.iter().chain([&command]) {
            let status = run_command(words, &stop)?;
            if stop.load(Ordering::Relaxed) {
                return Err(Failure::Runtime("stopped before everything was measured".to_owned()));
            }
            if !status.success() {
                failures.push(format!("{} ({status})", shown(words)));
                break;
            }
        }
    }
    Ok(failures)
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

/// The lines of all steps of a figure. A step that has none was not measured.
fn points_of(asked: &PaperArguments, figure: &PaperFigure) -> Result<Points, Failure> {
    let mut points = Points::default();
    for step in &figure.steps {
        let path = asked.report.join(format!("{step}.jsonl"));
        if path.exists() {
            let of_step = Points::read(&path);
            points.add(of_step.map_err(|error| Failure::Runtime(format!("{}: {error}", path.display())))?);
        }
    }
    Ok(points)
}
