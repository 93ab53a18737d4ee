//! Checks that crates depend only on crates of a lower rank, and that certain external dependencies
//! are used by certain crates only.
//!
//! Invariants
//! - A crate uses only crates of a lower rank. Its tests may use higher ones where [`DEV_UPWARD`]
//!   says why.
//! - A dependency in [`FENCES`] is used only by the crates that its entry lists.

use serde_json::Value;

use crate::Violation;

/// The rank of each crate: it may only use crates of lower ranks.
pub const RANKS: [(&str, u32); 20] = [
    ("rackscan-format", 0),
    ("rackscan-fabric", 0),
    ("rackscan-device", 0),
    ("rackscan-queries", 0),
    ("rackscan-figures", 0),
    ("rackscan-trace", 0),
    ("rackscan-stripe", 0),
    ("rackscan-scan", 1),
    ("rackscan-cache", 1),
    ("rackscan-ramp", 1),
    ("rackscan-relay", 1),
    ("rackscan-delta", 2),
    ("rackscan-client", 2),
    ("rackscan-planner", 3),
    ("rackscan-storage-node", 3),
    ("rackscan-datasets", 4),
    ("rackscan-lab", 4),
    ("rackscan-engine", 5),
    ("rackscan-bench", 6),
    ("rackscan-cli", 7),
];

/// Crates that use none of the others and are used by none.
pub const OUTSIDE_RANKS: [&str; 1] = ["rackscan-tidy"];

/// A use that only tests make, against the direction of the ranks.
#[derive(Debug, Clone, Copy)]
pub struct UpwardUse {
    /// The crate whose tests use the other.
    pub from: &'static str,
    /// The crate of the same or a higher rank.
    pub to: &'static str,
    /// Why the test lives there.
    pub reason: &'static str,
}

/// The uses that tests make against the direction of the ranks.
pub const DEV_UPWARD: &[UpwardUse] = &[
    UpwardUse {
        from: "rackscan-client",
        to: "rackscan-storage-node",
        reason: "what a direct line reads and writes is seen on a real node's device",
    },
    UpwardUse {
        from: "rackscan-lab",
        to: "rackscan-datasets",
        reason: "what simulated queries count is compared with rows that were really generated and loaded",
    },
];

/// A dependency from outside the workspace that only some crates may know.
#[derive(Debug, Clone, Copy)]
pub struct Fence {
    /// The name of the package. Packages whose names continue with `-` are included
    /// (`datafusion-common`).
    pub package: &'static str,
    /// Why it is fenced.
    pub reason: &'static str,
    /// The crates that may use it, also in tests.
    pub users: &'static [&'static str],
}

/// The fenced dependencies.
pub const FENCES: &[Fence] = &[
    Fence {
        package: "datafusion",
        reason: "one crate names SQL sessions; its generics are compiled again by every crate that names them",
        users: &["rackscan-engine"],
    },
    Fence {
        package: "arrow",
        reason: "bytes, wires, devices and decisions are not about arrays",
        users: &[
            "rackscan-scan",
            "rackscan-client",
            "rackscan-storage-node",
            "rackscan-datasets",
            "rackscan-engine",
            "rackscan-bench",
            "rackscan-cli",
        ],
    },
    Fence { package: "io-uring", reason: "devices are read in one place", users: &["rackscan-device"] },
    Fence {
        package: "rdma-sys",
        reason: "adapters are driven in one place, and only where the feature verbs asks for them",
        users: &["rackscan-fabric"],
    },
    Fence {
        package: "tpchgen",
        reason: "generated tables come in where all tables come in; what measures kernels, and tests of pages, may make them too",
        users: &["rackscan-datasets", "rackscan-format", "rackscan-lab"],
    },
];

/// A package of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Names of the packages it uses, and whether only its tests do.
    pub uses: Vec<(String, bool)>,
    /// The absolute paths of the files that cargo builds directly.
    pub roots: Vec<String>,
}

/// Reads the packages from the output of `cargo metadata`. `None` if it has another shape.
pub fn packages(metadata: &Value) -> Option<Vec<Package>> {
    let text = |value: &Value, key: &str| Some(value.get(key)?.as_str()?.to_owned());
    let package = |value: &Value| {
        let uses = value.get("dependencies")?.as_array()?.iter();
        let roots = value.get("targets")?.as_array()?.iter();
        Some(Package {
            name: text(value, "name")?,
            uses: uses
                .map(|dependency| {
                    Some((text(dependency, "name")?, text(dependency, "kind").as_deref() == Some("dev")))
                })
                .collect::<Option<_>>()?,
            roots: roots.map(|target| text(target, "src_path")).collect::<Option<_>>()?,
        })
    };
    metadata.get("packages")?.as_array()?.iter().map(package).collect()
}

/// Returns uses of a crate that is not of a lower rank, and exceptions that are not needed.
pub fn wrong_direction(packages: &[Package], upward: &[UpwardUse]) -> Vec<Violation> {
    let rank = |name: &str| RANKS.iter().find(|(ranked, _)| *ranked == name).map(|(_, rank)| *rank);
    let ours = |name: &str| packages.iter().any(|package| package.name == name);
    let mut violations = Vec::new();
    for package in packages {
        let own_rank = rank(&package.name);
        if own_rank.is_none() && !OUTSIDE_RANKS.contains(&package.name.as_str()) {
            violations.push(Violation::of(&package.name, "has no rank: give it one in tidy/src/ranks.rs"));
        }
        for (used, only_tests) in package.uses.iter().filter(|(used, _)| ours(used)) {
            let excepted = *only_tests && upward.iter().any(|u| u.from == package.name && u.to == used);
            let below = own_rank.zip(rank(used)).is_some_and(|(own, other)| other < own);
            if !below && !excepted {
                let tests = if *only_tests { "in its tests, " } else { "" };
                let what = format!(
                    "uses {used} ({tests}rank {own_rank:?} on {:?}): only lower ranks may be used",
                    rank(used)
                );
                violations.push(Violation::of(&package.name, what));
            }
        }
    }
    let used = |u: &UpwardUse| {
        packages.iter().any(|p| p.name == u.from && p.uses.contains(&(u.to.to_owned(), true)))
    };
    let idle = upward.iter().filter(|u| !used(u));
    violations.extend(
        idle.map(|u| {
            Violation::of(u.from, format!("no longer tests with {}: remove it from DEV_UPWARD", u.to))
        }),
    );
    violations
}

/// Returns uses of a fenced dependency by a crate that is not in its list.
pub fn outside_fences(packages: &[Package], fences: &[Fence]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for package in packages {
        for (used, _) in &package.uses {
            let family = |fence: &&Fence| {
                used.strip_prefix(fence.package).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
            };
            let fence = fences.iter().find(family);
            if let Some(fence) = fence.filter(|fence| !fence.users.contains(&package.name.as_str())) {
                violations.push(Violation::of(&package.name, format!("uses {used}, but {}", fence.reason)));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, uses: &[(&str, bool)]) -> Package {
        let uses = uses.iter().map(|(used, dev)| ((*used).to_owned(), *dev)).collect();
        Package { name: name.to_owned(), uses, roots: Vec::new() }
    }

    fn directions(packages: &[Package], upward: &[UpwardUse]) -> Vec<String> {
        wrong_direction(packages, upward).iter().map(ToString::to_string).collect()
    }

    const SAMPLE: UpwardUse = UpwardUse { from: "rackscan-scan", to: "rackscan-client", reason: "a sample" };

    #[test]
    fn a_use_of_the_same_or_a_higher_rank_is_seen() {
        let format = package("rackscan-format", &[]);
        for used in ["rackscan-planner", "rackscan-engine"] {
            let up = package("rackscan-storage-node", &[(used, false), ("rackscan-format", false)]);
            let other = package(used, &[]);
            assert_eq!(directions(&[format.clone(), other, up], &[]).len(), 1, "{used}");
        }
    }

    #[test]
    fn tests_may_look_up_only_where_a_reason_is_listed() {
        let client = package("rackscan-client", &[]);
        let tests = package("rackscan-scan", &[("rackscan-client", true)]);
        let code = package("rackscan-scan", &[("rackscan-client", false)]);
        assert_eq!(directions(&[client.clone(), tests.clone()], &[]).len(), 1);
        assert_eq!(directions(&[client.clone(), tests], &[SAMPLE]), Vec::<String>::new());
        assert_eq!(directions(&[client.clone(), code], &[SAMPLE]).len(), 2);
        assert!(directions(&[client], &[SAMPLE])[0].contains("no longer tests"));
    }

    #[test]
    fn a_crate_without_a_rank_is_seen() {
        assert!(directions(&[package("rackscan-new", &[])], &[])[0].contains("has no rank"));
        let judge = package("rackscan-tidy", &[("rackscan-format", false)]);
        assert_eq!(directions(&[package("rackscan-format", &[]), judge], &[]).len(), 1);
    }

    #[test]
    fn a_use_outside_its_fence_is_seen() {
        let bench = package(
            "rackscan-bench",
            &[("datafusion", true), ("datafusion-common", false), ("datafusionx", false)],
        );
        assert_eq!(outside_fences(&[bench], FENCES).len(), 2);
        assert_eq!(outside_fences(&[package("rackscan-engine", &[("datafusion", false)])], FENCES), []);
    }

    #[test]
    fn metadata_of_another_shape_is_refused() {
        let good = r#"{"packages":[{"name":"a","dependencies":[{"name":"b","kind":"dev"},{"name":"c","kind":null}],
            "targets":[{"src_path":"/a/src/lib.rs"}]}]}"#;
        let parsed = packages(&serde_json::from_str(good).unwrap()).unwrap();
        assert_eq!(parsed[0].uses, [("b".to_owned(), true), ("c".to_owned(), false)]);
        assert_eq!(packages(&serde_json::json!({"packages": [{"name": "a"}]})), None);
    }
}
