//! Tests which data folders a node accepts. Method: folders are created, copied, moved and
//! restored, as operators do it.

use super::*;
use crate::config::DeviceConfig;

fn config(folder: &Path, members: &[u16]) -> Config {
    let device = DeviceConfig { path: folder.join("device"), size: None, reserve: false };
    let mut config = Config::new(NodeId(1), ClusterId(7), folder.to_owned(), device, folder.join("key"));
    config.members = members.iter().map(|node| NodeId(*node)).collect();
    config
}

fn start(config: &Config) -> Result<IdentityFile, IdentityError> {
    FolderStart::check(config)?.begin(config, &[])
}

fn nodes(ids: &[u16]) -> Vec<NodeId> {
    ids.iter().map(|node| NodeId(*node)).collect()
}

/// All of a folder, as `cp -a` would copy it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn a_member_list_is_written_once_and_another_one_is_refused_with_both() {
    let folder = tempfile::tempdir().unwrap();
    let begun = start(&config(folder.path(), &[2, 0, 1])).unwrap();
    assert_eq!(begun.text.members, nodes(&[0, 1, 2]));
    for other in [&[0, 1, 2, 3][..], &[0, 1], &[0, 1, 3]] {
        let error = start(&config(folder.path(), other)).unwrap_err().to_string();
        let found = listed(&nodes(other));
        assert!(error.contains(&format!("nodes {found}")) && error.contains("nodes 0, 1, 2"), "{error}");
    }
    // Who is told nothing goes on with what is recorded.
    assert_eq!(start(&config(folder.path(), &[])).unwrap().text.members, nodes(&[0, 1, 2]));
    let mut other = config(folder.path(), &[0, 1, 2]);
    other.node = NodeId(2);
    let error = start(&other).unwrap_err().to_string();
    assert!(error.contains("node 1 of cluster 7") && error.contains("node 2 of cluster 7"), "{error}");
}

#[test]
fn a_folder_of_an_earlier_version_is_adopted_unless_its_tables_say_otherwise() {
    for (told, tables, is_adopted) in [
        (&[0, 1, 2, 3][..], &[][..], true),
        (&[0, 1, 2, 3], &[&[0, 1, 2, 3][..]], true),
        (&[0, 1, 2, 3], &[&[0, 1, 2][..], &[3, 2, 1, 0]], true),
        (&[0, 1, 2, 3, 4], &[&[0, 1, 2, 3]], false),
        (&[0, 1, 2], &[&[0, 1, 2, 3]], false),
        (&[0, 1, 2, 4], &[&[0, 1, 2, 3]], false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), told);
        let tables: Vec<Vec<NodeId>> = tables.iter().map(|table| nodes(table)).collect();
        let begun = FolderStart::check(&config).unwrap().begin(&config, &tables);
        assert_eq!(begun.is_ok(), is_adopted, "{told:?} {tables:?}");
        if let Err(error) = begun {
            let error = error.to_string();
            assert!(
                error.contains("earlier version") && error.contains("expected nodes 0, 1, 2, 3"),
                "{error}"
            );
            assert!(IdentityFile::read(folder.path()).unwrap().is_none(), "nothing is written");
        }
    }
}

#[test]
fn a_copy_is_refused_while_its_original_is_there_and_is_another_folder_then() {
    let root = tempfile::tempdir().unwrap();
    let (original, beside) = (root.path().join("a"), root.path().join("b"));
    fs::create_dir(&original).unwrap();
    let first = start(&config(&original, &[1])).unwrap();
    copy(&original, &beside);
    let before = fs::read(beside.join(NAME)).unwrap();
    let error = start(&config(&beside, &[1])).unwrap_err().to_string();
    assert!(error.contains("is a copy of") && error.contains(&original.display().to_string()), "{error}");
    assert_eq!(fs::read(beside.join(NAME)).unwrap(), before);
    start(&config(&original, &[1])).unwrap();
    // The folder moves, and stays what it was.
    let moved = root.path().join("c");
    fs::rename(&original, &moved).unwrap();
    assert_eq!(start(&config(&moved, &[1])).unwrap().folder_id(), first.folder_id());
    // The copy takes the place of an original that has gone.
    fs::remove_dir_all(&moved).unwrap();
    let other = start(&config(&beside, &[1])).unwrap();
    assert_ne!(other.folder_id(), first.folder_id());
    assert_eq!(other.told().history.lineage, first.told().history.lineage);
}

#[test]
fn a_restored_folder_is_told_from_the_one_that_peers_have_seen() {
    let root = tempfile::tempdir().unwrap();
    let (folder, snapshot, peer) = (root.path().join("a"), root.path().join("s"), root.path().join("p"));
    for made in [&folder, &peer] {
        fs::create_dir(made).unwrap();
    }
    start(&config(&folder, &[1])).unwrap();
    copy(&folder, &snapshot);
    let seen = start(&config(&folder, &[1])).unwrap().told().history.last().unwrap();
    let mut peer = start(&config(&peer, &[1])).unwrap();
    assert!(peer.record_start(NodeId(1), seen).unwrap());
    assert!(!peer.record_start(NodeId(1), seen).unwrap(), "it is known");
    let again = IdentityFile::read(&root.path().join("p")).unwrap().unwrap();
    assert_eq!(again.told().seen_of(NodeId(1)), Some(seen));
    fs::remove_dir_all(&folder).unwrap();
    copy(&snapshot, &folder);
    let mut restored = start(&config(&folder, &[1])).unwrap();
    assert!(restored.told().history.lacks(&seen));
    restored.mark_outdated("node 2 has seen start 2").unwrap();
    let error = start(&config(&folder, &[1])).unwrap_err().to_string();
    assert!(error.contains("start 2") && error.contains("rackscan rebuild 1"), "{error}");
}

#[test]
fn a_damaged_file_is_refused_and_never_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), &[1]);
    start(&config).unwrap();
    let text = fs::read_to_string(folder.path().join(NAME)).unwrap();
    for damaged in ["", "nonsense", &text.replace("version = 1", "version = 2"), &text[..text.len() / 2]] {
        fs::write(folder.path().join(NAME), damaged).unwrap();
        let error = start(&config).unwrap_err().to_string();
        assert!(error.contains(NAME) && error.contains("restore"), "{error}");
        assert_eq!(fs::read_to_string(folder.path().join(NAME)).unwrap(), damaged);
    }
}
