//! Tests that memory of a killed process is not used. Over shared memory it stays mapped, with
//! slots that look valid for ever. Method: a node in a process of its own, which is this test
//! again, and SIGKILL.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use rackscan_client::{FollowError, Follower, Operations, Session, SessionOptions, TransactionError};
use rackscan_fabric::Address;
use rackscan_ramp::{algorithm::Algorithm, message::ParticipantId};

use crate::{
    follow::{Told, follower_options},
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

/// A node in a process that runs this test again.
fn start(place: &Place, test: &str) -> Child {
    let Address::Shm { path } = &place.address else { panic!("over shared memory") };
    let program = std::env::current_exe().expect("this program has a path");
    let test = format!("killed::{test}");
    let arguments = ["--exact", &test, "--nocapture"];
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
    let mut child = start(&place, "the_memory_of_a_process_that_was_killed_is_not_believed");
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
    assert!(
        error.to_string().contains("participant 9 is unavailable: the peer was lost: its process is gone"),
        "{error}"
    );
}

#[test]
fn who_follows_a_process_that_was_killed_is_told_so_and_not_that_there_is_no_news() {
    if let Ok(path) = std::env::var(PATH) {
        serve(&path);
    }
    let folder = tempfile::TempDir::new().unwrap();
    let place = Place::new(9, Address::Shm { path: folder.path().join("node.sock") });
    let test = "who_follows_a_process_that_was_killed_is_told_so_and_not_that_there_is_no_news";
    let mut child = start(&place, test);
    let scene = Scene::of(vec![place]);
    let mut session = Session::open(options(&scene, Algorithm::Fast, Operations::OneSided)).unwrap();
    session.write(vec![(of("\0a"), value("first"))]).unwrap();
    let mut follower = Follower::open(follower_options(&scene)).unwrap();
    let mut told = Told::default();
    for round in 0..100 {
        let caught = follower.catch_up(&mut told).unwrap();
        assert_eq!(caught.began_anew, round == 0);
    }
    assert_eq!(told.values.get(&of("\0a")), Some(&value("first")));
    child.kill().unwrap();
    child.wait().unwrap();
    let error = follower.catch_up(&mut told).unwrap_err();
    let is_down = matches!(
        &error,
        FollowError::Participant(TransactionError::NodeDown { participant: ParticipantId(9), .. })
    );
    assert!(is_down, "{error}");
}
