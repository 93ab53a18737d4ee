//! Parses the descriptions of the papers' figures.

use std::{collections::BTreeMap, ffi::OsString, path::Path};

use serde::Deserialize;

/// The descriptions, one file for each paper.
const TEXTS: [(&str, &str); 4] = [
    ("disaggregated-query", include_str!("disaggregated-query.toml")),
    ("ipush", include_str!("ipush.toml")),
    ("ramp-with-rdma", include_str!("ramp-with-rdma.toml")),
    ("redundant-writes", include_str!("redundant-writes.toml")),
];

/// Why a description cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// The file is not of the expected form.
    #[error("the description of {paper} cannot be read: {source}")]
    Malformed {
        /// The paper.
        paper: &'static str,
        /// The parser's error.
        source: toml::de::Error,
    },
    /// A name refers to nothing.
    #[error("{paper}, figure {figure}: {fault}")]
    Unknown {
        /// The paper.
        paper: &'static str,
        /// The number of the figure.
        figure: String,
        /// What refers to nothing.
        fault: String,
    },
}

/// A paper and its figures.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// Name of the paper on the command line.
    #[serde(skip)]
    pub name: &'static str,
    /// Authors, title and year.
    pub title: String,
    /// The machines that the paper measured on.
    pub machines: String,
    /// Its experiments.
    #[serde(rename = "step")]
    pub steps: Vec<Step>,
    /// Its figures and tables of measurements, in order.
    #[serde(rename = "figure")]
    pub figures: Vec<PaperFigure>,
}

/// An experiment: a command that appends JSON lines. Its words may contain `{work}`, a folder for
/// its data; `{seconds}`, `{scale}`, `{file}` and `{effort}`, which the caller scales; `{repeat}`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Its name, also that of its file.
    pub name: String,
    /// Commands that prepare data for it and append nothing.
    #[serde(default)]
    pub prepare: Vec<String>,
    /// The command, without `rackscan` and `--json`.
    pub command: String,
    /// Seconds of a turn at effort 1.
    #[serde(default = "one")]
    pub seconds: f64,
    /// Scale factor of TPC-H at effort 1.
    #[serde(default = "one")]
    pub scale: f64,
    /// What of the paper's axes was left out, and why.
    #[serde(default)]
    pub cut: String,
}

fn one() -> f64 {
    1.0
}

/// What the caller of a step decides.
#[derive(Debug, Clone, Copy)]
pub struct StepOptions<'o> {
    /// Folder for the step's data.
    pub work: &'o Path,
    /// 1 is usual; less shortens turns and makes data smaller.
    pub effort: f64,
    /// Rounds of each measurement.
    pub repeat: u32,
}

/// Least scale factor of TPC-H, seconds of a turn, and MiB of a file, whatever the effort.
const SCALE_MIN: f64 = 0.01;
const SECONDS_MIN: f64 = 0.05;
const FILE_MIB: (f64, f64) = (64.0, 1024.0);

impl Step {
    /// The words of its commands: those that prepare data, then the one that measures.
    #[must_use]
    pub fn commands(&self, options: StepOptions<'_>) -> (Vec<Vec<OsString>>, Vec<OsString>) {
        let StepOptions { work, effort, repeat } = options;
        let (least_mib, mib) = FILE_MIB;
        let values = [
            ("{seconds}", format!("{:.3}", (self.seconds * effort).max(SECONDS_MIN))),
            ("{scale}", format!("{:.3}", (self.scale * effort).max(SCALE_MIN))),
            ("{file}", format!("{:.0}MiB", (mib * effort).round().max(least_mib))),
            ("{effort}", format!("{effort}")),
            ("{repeat}", repeat.to_string()),
        ];
        let word = |word: &str| {
            if let Some(rest) = word.strip_prefix("{work}") {
                // A path may have bytes that are not UTF-8.
                return match rest.strip_prefix('/') {
                    Some(rest) => work.join(rest).into_os_string(),
                    None => work.as_os_str().to_owned(),
                };
            }
            values.iter().fold(word.to_owned(), |word, (name, value)| word.replace(name, value)).into()
        };
        let words = |command: &String| command.split_whitespace().map(word).collect::<Vec<OsString>>();
        (self.prepare.iter().map(words).collect(), words(&self.command))
    }
}

/// How points become marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Marks {
    /// Points joined by lines.
    Lines,
    /// Points.
    Scatter,
    /// Bars, one for each position.
    Bars,
}

/// How values map to positions on the axis at the bottom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Spacing {
    /// Equal differences are equally far apart.
    Linear,
    /// Equal ratios are equally far apart.
    Log2,
}

/// A quantity of a line.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantity {
    /// Its place in the line: `size`, `setting.io_threads`, or a product as `connections * depth`.
    pub field: String,
    /// What it is, with its unit.
    pub label: String,
    /// Multiplies the value, for another unit.
    #[serde(default = "one")]
    pub times: f64,
}

/// A curve: the lines whose fields have these values.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curve {
    /// Its name in the legend.
    pub name: String,
    /// Fields and their values; a list of values means one of them.
    #[serde(rename = "where")]
    pub filter: BTreeMap<String, toml::Value>,
    /// Whether only its best point counts, as a level across the picture.
    #[serde(default)]
    pub is_level: bool,
    /// The field at the bottom for this curve, in place of the figure's.
    #[serde(default)]
    pub x: Option<String>,
    /// The field on the left for this curve, in place of the figure's.
    #[serde(default)]
    pub y: Option<String>,
}

/// A number of the paper and how ours is made: the value of the curve `of`, or its ratio over the
/// curve `over`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// What is compared.
    pub what: String,
    /// A curve.
    pub of: String,
    /// The curve it is divided by.
    #[serde(default)]
    pub over: Option<String>,
    /// The position on the axis at the bottom; without it, the best point of each curve.
    #[serde(default)]
    pub at: Option<f64>,
    /// What the paper states.
    pub paper: f64,
}

/// A figure or table of a paper.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaperFigure {
    /// Its number in the paper: `4.19`, `table 4.2`.
    pub number: String,
    /// What it shows.
    pub title: String,
    /// Names of the steps whose lines it takes.
    pub steps: Vec<String>,
    /// How it is drawn.
    pub marks: Marks,
    /// The axis at the bottom.
    pub x: Quantity,
    /// How its values are spaced.
    #[serde(default = "linear")]
    pub spacing: Spacing,
    /// The axis at the left.
    pub y: Quantity,
    /// The field with the values of all turns, for error bars.
    #[serde(default)]
    pub turns: Option<String>,
    /// Whether less is better.
    #[serde(default)]
    pub less_is_better: bool,
    /// Whether the best point says nothing, as of a curve over time.
    #[serde(default)]
    pub has_no_best: bool,
    /// Of the lines of a curve at one position, take only the one with the least of this field.
    #[serde(default)]
    pub keep_least: Option<String>,
    /// The same with the greatest.
    #[serde(default)]
    pub keep_greatest: Option<String>,
    /// Its curves.
    pub curve: Vec<Curve>,
    /// The numbers that the paper states.
    #[serde(default)]
    pub compare: Vec<Comparison>,
    /// Values of the paper's axis at the bottom, in words.
    #[serde(default)]
    pub paper_axis: String,
    /// What the paper concludes from it, one sentence.
    pub finding: String,
}

fn linear() -> Spacing {
    Spacing::Linear
}

/// All papers.
///
/// # Errors
/// A description is malformed or names a step or curve that it does not have.
pub fn papers() -> Result<Vec<Paper>, CatalogError> {
    TEXTS.into_iter().map(|(name, text)| parse(name, text)).collect()
}

fn parse(name: &'static str, text: &str) -> Result<Paper, CatalogError> {
    let paper: Paper =
        toml::from_str(text).map_err(|source| CatalogError::Malformed { paper: name, source })?;
    for figure in &paper.figures {
        let unknown = |fault| CatalogError::Unknown { paper: name, figure: figure.number.clone(), fault };
        for step in &figure.steps {
            if !paper.steps.iter().any(|known| known.name == *step) {
                return Err(unknown(format!("there is no step '{step}'")));
            }
        }
        let named = figure.compare.iter().flat_map(|compare| [Some(&compare.of), compare.over.as_ref()]);
        for curve in named.flatten() {
            if !figure.curve.iter().any(|known| known.name == *curve) {
                return Err(unknown(format!("there is no curve '{curve}'")));
            }
        }
    }
    Ok(Paper { name, ..paper })
}

impl Paper {
    /// The figures of these numbers; all of them if there are none.
    ///
    /// # Errors
    /// The number that the paper does not have.
    pub fn select<'p, 'n>(&'p self, numbers: &'n [String]) -> Result<Vec<&'p PaperFigure>, &'n str> {
        if let Some(unknown) =
            numbers.iter().find(|number| !self.figures.iter().any(|figure| figure.number == **number))
        {
            return Err(unknown);
        }
        let wanted = |figure: &&PaperFigure| numbers.is_empty() || numbers.contains(&figure.number);
        Ok(self.figures.iter().filter(wanted).collect())
    }

    /// The steps that these figures take their lines from, in order.
    #[must_use]
    pub fn steps_of(&self, figures: &[&PaperFigure]) -> Vec<&Step> {
        let is_used = |step: &&Step| figures.iter().any(|figure| figure.steps.contains(&step.name));
        self.steps.iter().filter(is_used).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_description_is_complete() {
        let papers = papers().unwrap();
        assert_eq!(papers.len(), TEXTS.len());
        for paper in &papers {
            assert!(!paper.figures.is_empty() && !paper.title.is_empty() && !paper.machines.is_empty());
            for (index, figure) in paper.figures.iter().enumerate() {
                let before = &paper.figures[..index];
                assert!(before.iter().all(|other| other.number != figure.number), "{}", figure.number);
                assert!(!figure.finding.is_empty() && !figure.curve.is_empty(), "{}", figure.number);
            }
            for step in &paper.steps {
                let is_used = paper.figures.iter().any(|figure| figure.steps.contains(&step.name));
                assert!(is_used, "{}: no figure uses the step {}", paper.name, step.name);
            }
        }
    }

    #[test]
    fn names_without_a_meaning_are_refused() {
        let text = |step: &str, of: &str| {
            format!(
                "title = \"t\"\nmachines = \"m\"\n[[step]]\nname = \"s\"\ncommand = \"lab xor\"\n[[figure]]\nnumber = \"1\"\n\
                 title = \"t\"\nsteps = [\"{step}\"]\nmarks = \"lines\"\nx = {{ field = \"x\", label = \"x\" }}\n\
                 y = {{ field = \"y\", label = \"y\" }}\nfinding = \"f\"\ncurve = [{{ name = \"c\", where = {{}} }}]\n\
                 compare = [{{ what = \"w\", of = \"{of}\", paper = 2.0 }}]\n"
            )
        };
        assert!(parse("p", &text("s", "c")).is_ok());
        assert!(parse("p", &text("other", "c")).unwrap_err().to_string().contains("no step 'other'"));
        assert!(parse("p", &text("s", "other")).unwrap_err().to_string().contains("no curve 'other'"));
        let mistyped = text("s", "c").replace("finding", "findings");
        assert!(matches!(parse("p", &mistyped), Err(CatalogError::Malformed { .. })));
    }

    #[test]
    fn the_effort_scales_a_step() {
        let papers = papers().unwrap();
        let step = papers[0].steps.iter().find(|step| step.name == "replay").unwrap();
        let work = Path::new("/a folder");
        let words = |effort| {
            let (prepare, command) = step.commands(StepOptions { work, effort, repeat: 2 });
            let text = |words: Vec<OsString>| words.join("|".as_ref()).into_string().unwrap();
            (text(prepare[0].clone()), text(command))
        };
        let (prepare, command) = words(1.0);
        assert_eq!(prepare, "load|tpch|--scale|1.000|--page-size|16KiB|--data|/a folder/data");
        assert!(command.contains("--repeat|2|") && command.contains("--file-size|1024MiB"), "{command}");
        let (prepare, command) = words(0.001);
        assert!(prepare.contains("0.010") && command.contains("64MiB"), "{prepare} {command}");
        for step in papers.iter().flat_map(|paper| &paper.steps) {
            let (prepare, command) = step.commands(StepOptions { work, effort: 1.0, repeat: 1 });
            for word in prepare.iter().chain([&command]).flatten() {
                assert!(!word.to_str().unwrap().contains(['{', '}']), "{}: {word:?}", step.name);
            }
        }
    }

    #[test]
    fn figures_are_selected_by_number_with_their_steps() {
        let papers = papers().unwrap();
        let paper = &papers[2];
        let first = paper.figures[0].number.clone();
        let selected = paper.select(std::slice::from_ref(&first)).unwrap();
        assert_eq!(selected.len(), 1);
        assert_eq!(paper.steps_of(&selected).len(), selected[0].steps.len());
        assert_eq!(paper.select(&["99".to_owned()]).unwrap_err(), "99");
        assert_eq!(paper.select(&[]).unwrap().len(), paper.figures.len());
    }
}
