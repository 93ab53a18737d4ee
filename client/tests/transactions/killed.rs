//! Is the memory of a process believed that was killed? Over shared memory it stays mapped, with slots that look valid for ever. Method: a node in a process of its own,
//! this test's program again, and SIGKILL.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use rackscan_client::{Operations, Session, SessionOptions, TransactionError};
use rackscan_fabric::Address;
use rackscan_ramp::algorithm::Algorithm;

use crate::{
    node::Place,
    scene::Scene,
    sessions::{of, options, value},
};

const PATH: &str = "RACKSCAN_TEST_NODE";

/// Not a test of itself: what the other process runs.
#[test]
#[ignore = "run by another test, in a process of its own"]
fn a_node_in_this_process() {
    let Ok(path) = std::env::var(PATH) else { return };
    let mut place = Place::new(9, Address::Shm { path: path.into() });
    let _node = place.start();
    eprintln!("ready");
    loop {
        std::thread::park();
    }
}

fn start(place: &Place) -> Child {
    let Address::Shm { path } = &place.address else { panic!("over shared memory") };
    let program = std::env::current_exe().unwrap();
    let arguments = ["--exact", "killed::a_node_in_this_process", "--ignored", "--nocapture"];
    let mut command = Command::new(program);
    command.args(arguments).env(PATH, path);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "ready"), "the node starts");
    child
}

#[test]
fn the_memory_of_a_process_that_was_killed_is_not_believed() {
    let folder = tempfile::TempDir::new().unwrap();
    let place = Place::new(9, Address::Shm { path: folder.path().join("node.sock") });
    let mut child = start(&place);
    let scene = Scene::of(vec![place]);
    let options: SessionOptions = options(&scene, Algorithm::Fast, Operations::OneSided);
    let mut session = Session::open(options).unwrap();
    session.write(vec![(of("a"), value("first"))]).unwrap();
    session.read(&[of("a")]).unwrap();
    for _ in 0..100 {
        assert_eq!(session.read(&[of("a")]).unwrap().one_sided, 1);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let error = session.read(&[of("a")]).unwrap_err();
    assert!(matches!(error, TransactionError::NodeDown { .. }), "{error}");
    assert!(error.to_string().contains("home 9 is away: the peer was lost: its process is gone"), "{error}");
}
