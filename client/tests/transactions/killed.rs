//! Is the memory of a process believed that was killed? Over shared memory it stays mapped, with slots that look valid for ever. Method: a node in a process of its own,
//! which is this test again, and SIGKILL.

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

/// What the other process does: it is a node, until it is killed.
fn serve(path: &str) -> ! {
    let mut place = Place::new(9, Address::Shm { path: path.into() });
    let _node = place.start();
    eprintln!("ready");
    loop {
        std::thread::park();
    }
}

fn start(place: &Place) -> Child {
    let Address::Shm { path } = &place.address else { panic!("over shared memory") };
    let program = std::env::current_exe().expect("this program has a path");
    let arguments =
        ["--exact", "killed::the_memory_of_a_process_that_was_killed_is_not_believed", "--nocapture"];
    let mut command = Command::new(program);
    command.args(arguments).env(PATH, path);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts again");
    let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line == "ready")), "the node starts");
    child
}

#[test]
fn the_memory_of_a_process_that_was_killed_is_not_believed() {
    if let Ok(path) = std::env::var(PATH) {
        serve(&path);
    }
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
